"""Files that are written whole or not at all."""

import ctypes
import errno
import os
import re
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from odt_sim.errors import FileError, MissingError


def write_file(path: Path, content: bytes) -> None:
    """Writes a file, and its folders, so that whatever happens it holds its earlier content or the whole new one.

    The content goes beside it under a name of its own, which also keeps processes and machines apart that share the
    folder, is synced, and then takes the file's place.

    Args:
        path: Where.
        content: What.

    Raises:
        FileError: The file cannot be written; what was there before is untouched, and nothing is left beside it.
    """
    try:
        _replace(path, content)
    except OSError as error:
        raise unwritable(path, error) from error


def temporary(names: str) -> str:
    """Returns the pattern of what files are called until they take their place; it fits no dated copy of a user's.

    Args:
        names: The pattern of the files' own names.
    """
    return rf"\.(?:{names})\.[0-9a-f]{{8}}\.part"


def remove_temporaries(folder: Path, names: Iterable[str]) -> None:
    """Removes what killed writes of files have left beside them, and nothing else; nobody may be writing them now.

    Args:
        folder: Where the files are, or would be.
        names: What they are called.

    Raises:
        FileError: It cannot be removed.
    """
    left = re.compile(temporary("|".join(map(re.escape, names))))
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if left.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    Path(entry).unlink(missing_ok=True)  # its writer may have ended in between, dead as it seemed
    except OSError as error:
        raise unwritable(folder, error) from error


def sync_names(folder: Path) -> None:
    """Waits until the names in a folder are on its disk: that a file has taken a name's place may be lost without it.

    Raises:
        FileError: The disk reports an error.
    """

    def sync(descriptor: int) -> None:
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # which is said by file systems that do not sync folders
                raise

    _on_folder(folder, sync)


def cache_folder(name: str) -> Path:
    """Returns the folder of one kind of what is kept between runs: below `$ODT_SIM_CACHE`, or `~/.cache/odt_sim`.

    Raises:
        FileError: There is no home folder.
    """
    try:
        return Path(os.environ.get("ODT_SIM_CACHE") or "~/.cache/odt_sim").expanduser() / name
    except RuntimeError as error:
        raise FileError(f"cache: {error}; set ODT_SIM_CACHE to a writable folder") from error


def sync_folder(folder: Path) -> None:
    """Waits until all that was written to a folder's file system is on its disk.

    Raises:
        FileError: The disk reports an error.
    """

    def sync(descriptor: int) -> None:
        if _libc.syncfs(descriptor):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    _on_folder(folder, sync)


def _on_folder(folder: Path, sync: Callable[[int], None]) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            sync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise unwritable(folder, error) from error


_libc = ctypes.CDLL(None, use_errno=True)


def unwritable(path: Path, error: OSError) -> FileError:
    """Returns the error that says which file the system refused to write."""
    return FileError(f"{path}: cannot write it ({error.strerror}); make room there or choose another place")


def missing(where: str) -> MissingError:
    """Returns the error that says which checkpoint, or which part of one, is not there."""
    return MissingError(f"{where}: no such checkpoint; put it back if there is a copy")


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
