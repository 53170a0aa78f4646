"""Cache of `keras.datasets`, filled by a subprocess so that this process never loads TensorFlow."""

import importlib.util
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from odt_sim.errors import DataError, transient
from odt_sim.files import cache_folder

PROGRAM = Path(__file__).parents[1] / "export" / "keras_download.py"
_log = logging.getLogger(__name__)


def cached_keras_file(name: str) -> Path:
    """Return the `.npz` file with the arrays `x` and `y` of a Keras data set; the first use downloads it.

    Raises:
        DataError: Keras is not installed, has no such data set, or the download failed.
        FileError: There is no home folder.
    """
    if not name.isidentifier():
        raise DataError(f"data {name}: is not the name of a Keras data set; choose one such as mnist or cifar10")
    path = cache_folder("data") / f"keras_{name}.npz"
    if not path.exists():
        _download(name, path)
    return path


def _download(name: str, path: Path) -> None:
    if importlib.util.find_spec("keras") is None:
        raise DataError(
            f"data {name}: needs Keras to download it, which is not installed; run: pip install 'odt_sim[export]'"
        )
    _log.info("downloading the Keras data set %s into %s", name, path.parent)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            unfinished = Path(folder) / path.name
            _run(name, unfinished)
            unfinished.replace(path)  # atomic, even if two processes download at once
    except OSError as error:
        raise transient(
            DataError(f"data {name}: cannot be stored in {path.parent} ({error}); set ODT_SIM_CACHE to another folder")
        ) from error


def _run(name: str, path: Path) -> None:
    # By path and with -P, because the subprocess imports only Keras and numpy.
    command = [sys.executable, "-P", str(PROGRAM), name, str(path)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise transient(
            DataError(
                f"data {name}: Keras failed to load it ({reason}); check the name and the network, then try again"
            )
        )
