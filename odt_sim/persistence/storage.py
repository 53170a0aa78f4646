"""The place of a run's checkpoint: a folder, or objects below a URI."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from filelock import FileLock, Timeout

from odt_sim._support.files import WITHOUT_LOCKS, missing, sync_file_system, sync_names, unwritable, write_file
from odt_sim.errors import CheckpointError, ConfigurationError, FileError
from odt_sim.persistence.object_store import ObjectStore

LOCK = ".lock"


class Storage(Protocol):
    """Files by name; a name is a relative path with slashes."""

    def locked(self, on_warning: Callable[[str], object]) -> AbstractContextManager[None]:
        """Keep other processes from running there during the block, if the place has locks.

        Args:
            on_warning: Called with a line if a folder has no locks.

        Raises:
            CheckpointError: Another process runs there.
            FileError: The place cannot be written.
        """

    def where(self, name: str) -> str:
        """Return a file's full name for errors."""

    def read(self, name: str) -> bytes:
        """Return a file's content.

        Raises:
            CheckpointError: There is no such file.
            FileError: The file cannot be read now, though it may be intact.
        """

    def replace(self, name: str, content: bytes, *, secret: bool = False) -> None:
        """Write a file atomically; it is durable when this returns. In a folder, only this user may read a secret one.

        Raises:
            FileError: The file cannot be written.
        """

    def add(self, name: str, content: bytes) -> None:
        """Write a file to which nothing refers yet; it is durable after the next `sync`.

        A process that was killed, or is wrongly thought dead, may have written all or part of the same content.

        Raises:
            FileError: The file cannot be written.
        """

    def sync(self) -> None:
        """Make all files durable that any process of this machine has added.

        Raises:
            FileError: The disk reports an error.
        """

    def delete(self, names: Iterable[str]) -> None:
        """Remove files; missing ones are ignored.

        Raises:
            FileError: A file cannot be removed.
        """

    def names(self) -> list[str]:
        """Return the names of all files, including those that odt_sim did not write.

        Raises:
            FileError: They cannot be listed now.
        """


@dataclass(frozen=True)
class Folder:
    """A folder of this machine, or one that machines share.

    Attributes:
        path: The absolute path; the folder is created by the first write.
    """

    path: Path

    def locked(self, on_warning: Callable[[str], object]) -> AbstractContextManager[None]:
        """Lock the folder; create it if needed."""
        return locked(self.path, on_warning, "run.storage")

    def where(self, name: str) -> str:
        """Return the file's path."""
        return os.path.join(self.path, name)

    def read(self, name: str) -> bytes:
        """Read a file."""
        try:
            with open(self.where(name), "rb") as file:
                return file.read()
        except FileNotFoundError as error:
            raise missing(self.where(name)) from error
        except (IsADirectoryError, NotADirectoryError) as error:
            raise CheckpointError(
                f"{self.where(name)}: damaged or not a checkpoint ({error.strerror}); restore it from a backup"
            ) from error
        except OSError as error:
            raise FileError(
                f"{self.where(name)}: cannot be read ({error.strerror}); check permissions and the disk"
            ) from error

    def replace(self, name: str, content: bytes, *, secret: bool = False) -> None:
        """Replace a file and sync its folder."""
        path = self.path / name
        write_file(path, content, secret=secret)
        sync_names(path.parent)

    def add(self, name: str, content: bytes) -> None:
        """Write a file in place, without the cost of a rename.

        The file is not truncated first: if a process that is thought dead writes it again, no content is lost
            meanwhile.
        """
        path = self.where(name)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o666), "wb") as file:
                file.write(content)
                file.truncate()
        except OSError as error:
            raise unwritable(Path(path), error) from error

    def sync(self) -> None:
        """Sync the file system: once a round, because syncing each file would cost more than the training.

        In a folder shared by machines, a file is on the server once it is closed.
        """
        if self.path.exists():
            sync_file_system(self.path)

    def delete(self, names: Iterable[str]) -> None:
        """Remove files."""
        for name in names:
            try:
                os.unlink(self.where(name))
            except FileNotFoundError:
                pass
            except OSError as error:
                raise FileError(
                    f"{self.where(name)}: cannot remove it ({error.strerror}); check permissions"
                ) from error

    def names(self) -> list[str]:
        """Return the files below the folder, including those behind links to folders."""
        found = os.walk(self.path, onerror=_refuse, followlinks=True)
        return [os.path.relpath(os.path.join(folder, file), self.path) for folder, _, files in found for file in files]


def _refuse(error: OSError) -> None:
    """Raise the error of a folder that cannot be listed; a missing one has no files."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise FileError(f"{error.filename}: cannot be read ({error.strerror}); check permissions") from error


PROBE = "probe"
"""The file that is written and removed again to check access to a storage."""


def check_writable(storage: Storage) -> None:
    """Write a file and remove it.

    Raises:
        FileError: It cannot be written.
    """
    storage.replace(PROBE, b"")
    storage.delete([PROBE])


def is_uri(place: str) -> bool:
    """Return whether a place is a URI rather than a path."""
    return "://" in place or place.startswith("file:")


def storage_at(place: str | os.PathLike[str]) -> Storage:
    """Return the storage at a path or a URI; `file:` is the scheme of folders, and `~` is the user's folder.

    Raises:
        ConfigurationError: The URI cannot be used.
    """
    if not isinstance(place, str) or not is_uri(place):
        return Folder(Path(os.path.expanduser(place)).absolute())
    uri = place.rstrip("/")
    parts = urlsplit(uri)
    if parts.scheme != "file":
        return ObjectStore(uri)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ConfigurationError(f"run.storage: expected an absolute path such as file:///shared/run-1, found {uri}")
    return Folder(Path(unquote(parts.path)))


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
