"""The cases of the coverage table in docs/export.md that `coverage_exports.py` chooses train in Chromium as in Python."""

from pathlib import Path
from typing import Any

import pytest
from exporter import EXPORTER
from filelock import FileLock
from recording import Recording

from odt_sim import TrainableModel
from tests.export.coverage_folder import coverage_folder


@pytest.fixture(scope="session")
def files() -> list[Path]:
    """The files of `coverage_files.py`, exported once for the same sources and versions."""
    folder = coverage_folder()
    with FileLock(folder.with_suffix(".lock")):
        if not (folder / "complete").exists():
            EXPORTER.program(Path(__file__).parent / "coverage_files.py", folder)
            (folder / "complete").touch()
    return sorted(folder.glob("*.tflite"))


def test_two_steps_agree(harness: Any, files: list[Path]) -> None:
    assert len(files) > 25
    assert not {path.stem: wrong for path in files if (wrong := differences(harness, path))}


def differences(page: Any, path: Path) -> dict[str, float]:
    """Return the outputs of a file that differ by more than 1e-6."""
    recording = Recording(TrainableModel.load(path))
    for _ in range(2):
        recording.train()
    recording.state()
    recording.infer()
    return {name: value for name, value in recording.differences(page).items() if not value <= 1e-6}
