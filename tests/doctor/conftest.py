"""The file with one fault in each signature, written once and cached."""

import hashlib
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import pytest
from filelock import FileLock

from odt_sim.export.cache import QUIET, default_directory

HERE = Path(__file__).parent
SOURCES = (HERE / "patients.py", HERE.parent / "dialects" / "models.py")


@pytest.fixture(scope="session")
def patient() -> Path:
    digest = hashlib.sha256(b"".join([version("tensorflow").encode(), *(path.read_bytes() for path in SOURCES)]))
    file = default_directory() / f"doctor-{digest.hexdigest()[:16]}.tflite"
    default_directory().mkdir(parents=True, exist_ok=True)
    with FileLock(default_directory() / "doctor.lock"):
        if not file.exists():
            with tempfile.TemporaryDirectory(dir=default_directory()) as temporary:
                environment = {**os.environ, **QUIET, "PYTHONPATH": str(HERE.parent)}
                subprocess.run([sys.executable, str(SOURCES[0]), temporary], env=environment, check=True)
                (Path(temporary) / "patient.tflite").rename(file)
    return file
