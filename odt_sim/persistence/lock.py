"""A run's folder belongs to one process at a time."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from odt_sim.errors import CheckpointError
from odt_sim.persistence.files import unwritable

LOCK = ".lock"


@contextmanager
def locked(folder: Path, on_warning: Callable[[str], object]) -> Iterator[None]:
    """Keeps other processes from running in a folder while the block does; a lock ends with its process, however that dies.

    Args:
        folder: The run's folder, which is made where there is none. Blocks of a thread may stand in each other.
        on_warning: Called with a line where the file system has no locks, and others are not kept out: what stands in for
            a lock elsewhere, a file, would outlive a killed process.

    Raises:
        CheckpointError: Another process runs in the folder.
        FileError: The folder cannot be written.
    """
    lock = FileLock(folder / LOCK, timeout=0, is_singleton=True, fallback_to_soft=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise CheckpointError(f"{folder}: another process runs in it now; wait until that ends, or end it") from error
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise unwritable(folder / LOCK, error) from error
        on_warning(f"{folder}: its file system has no locks (flock); see that no other process runs there")
    try:
        yield
    finally:
        lock.release()
