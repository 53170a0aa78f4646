"""How long the torture lasts: short in every run of the tests, long by `make torture`."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from disturbed import outcome

from odt_sim.cli.main import main


@pytest.fixture(scope="session")
def long() -> bool:
    return os.environ.get("TORTURE") == "long"


@pytest.fixture
def undisturbed(tmp_path: Path, digits_mlp: Any) -> Callable[..., dict[str, Any]]:
    """Returns a function that runs in one process, which nothing disturbs."""

    def run(*overrides: str) -> dict[str, Any]:
        assert main(["run", *overrides, "backend=serial", f"hydra.run.dir={tmp_path}/undisturbed"]) == 0
        return outcome(tmp_path / "undisturbed")

    return run
