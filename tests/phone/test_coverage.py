"""Two cases of each row of the coverage table in docs/export.md train in Chromium as in Python."""

import hashlib
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from recording import Recording

import odt_sim
from odt_sim import TrainableModel
from odt_sim.export.cache import QUIET, default_directory

HERE = Path(__file__).parent
SOURCES = [HERE / "coverage_files.py", HERE.parent / "export" / "test_export_contract.py"]
FOLDERS = [Path(odt_sim.__file__).parent / "export", HERE.parent / "export" / "parity"]


@pytest.fixture(scope="session")
def files() -> list[Path]:
    """The files of `coverage_files.py`, exported once for the same sources and versions."""
    sources = [*SOURCES, *(path for folder in FOLDERS for path in sorted(folder.rglob("*.py")))]
    content = b"".join(path.read_bytes() for path in sources) + version("tensorflow").encode()
    folder = default_directory() / f"coverage-{hashlib.sha256(content).hexdigest()[:16]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            temporary = folder.with_suffix(f".{os.getpid()}")
            temporary.mkdir()
            command = [sys.executable, HERE / "coverage_files.py", temporary]
            subprocess.run(command, check=True, env={**os.environ, **QUIET}, capture_output=True)
            temporary.rename(folder)
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
