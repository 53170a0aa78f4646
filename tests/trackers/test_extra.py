"""Optional dependencies of the trackers."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from odt_sim.cli.hydra.components import build
from odt_sim.errors import ConfigurationError
from odt_sim.trackers.base import Tracker

ROOT = Path(__file__).parents[2]
LIBRARIES = ("tensorboard", "mlflow", "wandb")


def configured(name: str) -> Any:
    return OmegaConf.load(ROOT / "conf" / "tracker" / f"{name}.yaml")


def test_all_configured_trackers_are_tested() -> None:
    assert {path.stem for path in (ROOT / "conf" / "tracker").glob("*.yaml")} == {"none", *LIBRARIES}
    assert type(build(configured("none"), "tracker")) is Tracker


@pytest.mark.parametrize("extra", LIBRARIES)
def test_missing_extra_prints_the_pip_line(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, extra, None)  # makes Python's import fail
    with pytest.raises(ConfigurationError) as raised:
        build(configured(extra), "tracker")
    assert str(raised.value).startswith(f"tracker={extra}: cannot import {extra} (")
    assert str(raised.value).endswith(f"; run: pip install 'odt_sim[{extra}]'")


@pytest.mark.parametrize("extra", LIBRARIES)
def test_extra_installs_the_module(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert any(requirement.startswith(extra) for requirement in project["optional-dependencies"][extra])


def test_no_tracking_library_is_imported_without_a_tracker() -> None:
    program = (
        "import sys, odt_sim.cli.commands.run\n"
        "import odt_sim.trackers.mlflow, odt_sim.trackers.tensorboard, odt_sim.trackers.wandb\n"
        "print(sorted({'tensorboard', 'mlflow', 'wandb', 'tensorflow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
