"""The fixture of a file with one fault in each signature, written once and cached."""

import hashlib
import tempfile
from importlib.metadata import version
from pathlib import Path

import pytest
from exporter import EXPORTER
from filelock import FileLock

from odt_sim.export.cache import default_directory

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
                EXPORTER.program(SOURCES[0], temporary)
                (Path(temporary) / "patient.tflite").rename(file)
    return file
