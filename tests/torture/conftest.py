"""Fixtures of the torture tests: short versions run with the slow tests, long ones by `make torture`."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from disturbed import outcome

from odt_sim.cli.commands.run import launch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def long() -> bool:
    return os.environ.get("TORTURE") == "long"


@pytest.fixture
def undisturbed(tmp_path: Path, digits_mlp: Any) -> Callable[..., dict[str, Any]]:
    """Return a function that runs the command in one process, undisturbed."""

    def run(*overrides: str) -> dict[str, Any]:
        assert launch([*overrides, "backend=serial", f"hydra.run.dir={tmp_path}/undisturbed"]).failed == 0
        return outcome(tmp_path / "undisturbed")

    return run
