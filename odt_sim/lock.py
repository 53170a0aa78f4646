"""A run's folder belongs to one process at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from odt_sim.errors import CheckpointError
from odt_sim.files import unwritable

LOCK = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps other processes from running in a folder while the block does; a lock ends with its process, however that dies.

    Args:
        folder: The run's folder, which is made where there is none. Blocks of a thread may stand in each other.

    Raises:
        CheckpointError: Another process runs in the folder.
        FileError: The folder cannot be written.
    """
    lock = FileLock(folder / LOCK, timeout=0, is_singleton=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise CheckpointError(f"{folder}: another process runs in it now; wait until that ends, or end it") from error
    except OSError as error:
        raise unwritable(folder / LOCK, error) from error
    try:
        yield
    finally:
        lock.release()
