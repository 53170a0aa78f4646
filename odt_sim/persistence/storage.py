"""Where a run keeps what it needs to go on: a folder, or what a URI names."""

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from odt_sim.errors import CheckpointError, ConfigurationError, FileError
from odt_sim.persistence.files import missing, sync_folder, sync_names, unwritable, write_file
from odt_sim.persistence.lock import locked
from odt_sim.persistence.object_store import ObjectStore


class Storage(Protocol):
    """Whole pieces of content by name; a name is a relative path with slashes."""

    def locked(self, on_warning: Callable[[str], object]) -> AbstractContextManager[None]:
        """Keeps the runs of other processes out while the block runs, where the place can.

        Args:
            on_warning: Called with a line where a folder cannot.

        Raises:
            CheckpointError: Another process runs there.
            FileError: The place cannot be written.
        """

    def where(self, name: str) -> str:
        """Returns what an error calls a piece."""

    def exists(self, name: str) -> bool:
        """Whether there is a piece of this name.

        Raises:
            FileError: It cannot be asked for now.
        """

    def read(self, name: str) -> bytes:
        """Returns a piece.

        Raises:
            CheckpointError: There is none.
            FileError: It cannot be read for now: nothing is known of it.
        """

    def replace(self, name: str, content: bytes) -> None:
        """Writes a piece so that whatever happens it is the earlier or the new one; it lasts once this returns.

        Raises:
            FileError: It cannot be written.
        """

    def add(self, name: str, content: bytes) -> None:
        """Writes a piece that nothing refers to yet; it lasts after the next `sync`.

        A piece of this name may be there, left by a process that was killed or has been thought dead. It then is a part of
        the same content, or the whole.

        Raises:
            FileError: It cannot be written.
        """

    def sync(self) -> None:
        """Waits until all that was added, by whichever process, lasts.

        Raises:
            FileError: The disk reports an error.
        """

    def delete(self, names: Iterable[str]) -> None:
        """Removes pieces; those that are not there do not matter.

        Raises:
            FileError: One cannot be removed.
        """

    def names(self) -> list[str]:
        """Returns the names of all pieces, and of what else lies there.

        Raises:
            FileError: They cannot be read for now.
        """


@dataclass(frozen=True)
class Folder:
    """A folder of this machine, or one that machines share.

    Attributes:
        path: The folder, absolute; it is made when something is written.
    """

    path: Path

    def locked(self, on_warning: Callable[[str], object]) -> AbstractContextManager[None]:
        """Locks the folder, which is made where there is none."""
        return locked(self.path, on_warning)

    def where(self, name: str) -> str:
        """Returns the file's path."""
        return os.path.join(self.path, name)

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        return os.path.exists(self.where(name))

    def read(self, name: str) -> bytes:
        """Reads a file."""
        try:
            with open(self.where(name), "rb") as file:
                return file.read()
        except FileNotFoundError as error:
            raise missing(self.where(name)) from error
        except (IsADirectoryError, NotADirectoryError) as error:
            raise CheckpointError(
                f"{self.where(name)}: damaged or no checkpoint ({error.strerror}); put back a whole copy if there is one"
            ) from error
        except OSError as error:
            raise FileError(
                f"{self.where(name)}: cannot be read ({error.strerror}); see who may do so, and that its disk is well"
            ) from error

    def replace(self, name: str, content: bytes) -> None:
        """Replaces a file; it is on the disk when this returns."""
        path = self.path / name
        write_file(path, content)
        sync_names(path.parent)

    def add(self, name: str, content: bytes) -> None:
        """Writes a file in place, without the cost of a second name.

        It is not emptied first: where a process that is thought dead writes it again, it never holds less than it did.
        """
        path = self.where(name)
        try:
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except FileNotFoundError:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
            with open(descriptor, "wb", buffering=0) as file:
                left = memoryview(content)
                while left:
                    left = left[file.write(left) :]
                file.truncate()
        except OSError as error:
            raise unwritable(Path(path), error) from error

    def sync(self) -> None:
        """Brings the file system to its disk: once a round, since file by file would cost more than the training.

        Of a folder that machines share, a file is on its server once it is closed.
        """
        if self.path.exists():
            sync_folder(self.path)

    def delete(self, names: Iterable[str]) -> None:
        """Removes files."""
        for name in names:
            try:
                os.unlink(self.where(name))
            except FileNotFoundError:
                pass
            except OSError as error:
                raise FileError(
                    f"{self.where(name)}: cannot remove it ({error.strerror}); see who may do so"
                ) from error

    def names(self) -> list[str]:
        """Returns the files below the folder, those behind links to folders too: a part of it may be on another disk."""
        found = os.walk(self.path, onerror=self._refuse, followlinks=True)
        return [os.path.relpath(os.path.join(folder, file), self.path) for folder, _, files in found for file in files]

    def _refuse(self, error: OSError) -> None:
        """Raises the error of a folder that cannot be listed; one that is not there has no files."""
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise FileError(f"{error.filename}: cannot be read ({error.strerror}); see who may do so") from error


PROBE = "probe"
"""What is written, and removed again, to see who can reach a storage."""


def check_writable(storage: Storage) -> None:
    """Writes a piece and removes it.

    Raises:
        FileError: It cannot be written.
    """
    storage.replace(PROBE, b"")
    storage.delete([PROBE])


def is_uri(place: str) -> bool:
    """Returns whether a place is a URI, and no path."""
    return "://" in place or place.startswith("file:")


def storage_at(place: str | os.PathLike[str]) -> Storage:
    """Returns the storage that a path or a URI names; `file:` names a folder, and `~` the user's.

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
        raise ConfigurationError(f"run.storage: expected a whole path such as file:///shared/run-1, found {uri}")
    return Folder(Path(unquote(parts.path)))
