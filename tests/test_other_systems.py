"""On macOS everything except forks runs; on Windows one line says what to use."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from odt_sim import TrainableModel
from odt_sim.cli.main import main
from odt_sim.persistence.run_folder import RunFolder

LACKING = Path(__file__).parent / "other_system"


def command(system: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as on another system, with an empty cache, so that it verifies models."""
    variables = {"PYTHONPATH": str(LACKING), "OTHER_SYSTEM": system, "ODT_SIM_CACHE": str(folder / "cache")}
    return subprocess.run(
        [sys.executable, "-m", "odt_sim", *arguments],
        env={**os.environ, **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def settings(digits_mlp: TrainableModel, tmp_path: Path) -> list[str]:
    (tmp_path / "mlp.tflite").write_bytes(digits_mlp.content)
    model = ["model=tflite", f"model.path={tmp_path / 'mlp.tflite'}"]
    return ["run", *model, "fleet.devices=4", "fleet.unseen=0", "run.rounds=2"]


@pytest.mark.slow
def test_macos_reports_the_same_figures(settings: list[str], tmp_path: Path) -> None:
    there = command("darwin", tmp_path, *settings, "hydra.run.dir=there")
    assert there.returncode == 0, there.stderr
    assert main([*settings, f"hydra.run.dir={tmp_path}/here"]) == 0
    here, other = (RunFolder(tmp_path / name).summary() for name in ("here", "there"))
    assert here
    assert other
    assert here.metrics == other.metrics


@pytest.mark.slow
def test_forks_are_refused_on_macos(settings: list[str], tmp_path: Path) -> None:
    there = command("darwin", tmp_path, *settings, "backend=processes")
    assert there.returncode == 1
    assert "backend: processes runs only on Linux; use backend=ray, which uses all cores, or serial" in there.stderr


def test_windows_is_told_to_use_its_linux(tmp_path: Path) -> None:
    there = command("win32", tmp_path, "--help")
    assert there.returncode == 1
    assert re.search(
        r"odt_sim: expected Linux or macOS, found Windows; use Windows Subsystem .*/wsl$", there.stderr.strip()
    )
