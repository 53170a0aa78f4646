"""The folder of the files of `coverage_exports.py`; this module does not import TensorFlow."""

import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path

import odt_sim
from odt_sim.export.cache import default_directory

HERE = Path(__file__).parent
PHONE = HERE.parent / "phone" / "coverage_files.py"
SOURCES = [HERE / "conftest.py", HERE / "coverage_exports.py", HERE / "test_export_contract.py", PHONE]
FOLDERS = [Path(odt_sim.__file__).parent / "export", HERE / "parity"]


@cache
def coverage_folder() -> Path:
    """Return a folder for the current sources and versions."""
    sources = [*SOURCES, *(path for folder in FOLDERS for path in sorted(folder.rglob("*.py")))]
    content = b"".join(path.read_bytes() for path in sources) + version("tensorflow").encode()
    folder = default_directory() / f"coverage-{hashlib.sha256(content).hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
