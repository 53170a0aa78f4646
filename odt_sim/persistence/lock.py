"""A lock that reserves a run's folder for one process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from odt_sim._support.files import WITHOUT_LOCKS, unwritable
from odt_sim.errors import CheckpointError, FileError

LOCK = ".lock"


@contextmanager
def locked(folder: Path, on_warning: Callable[[str], object], setting: str | None = None) -> Iterator[None]:
    """Keep other processes from running in a folder during the block; released when the process exits.

    Args:
        folder: The run's folder, which is created if needed. The lock is reentrant.
        on_warning: Called with a line if the file system has no locks (flock).
        setting: The setting that names the folder, for the error if it cannot be written.

    Raises:
        CheckpointError: Another process runs in the folder.
        FileError: The folder cannot be written.
    """
    lock = FileLock(folder / LOCK, timeout=0, is_singleton=True, fallback_to_soft=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise CheckpointError(f"{folder}: in use by another process; wait until it finishes, or stop it") from error
    except OSError as error:
        if folder.is_file():
            where = f"{setting}: {folder}" if setting else str(folder)
            raise FileError(f"{where}: expected a folder, found a file; choose another location") from error
        if error.errno not in WITHOUT_LOCKS:
            raise unwritable(folder / LOCK, error, setting) from error
        on_warning(f"{folder}: its file system does not support locks (flock); check that no other process uses it")
    try:
        yield
    finally:
        lock.release()
