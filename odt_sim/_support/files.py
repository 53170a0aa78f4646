"""Atomic and durable writes of files, and pages from the templates of odt_sim's packages."""

import ctypes
import errno
import os
import re
import secrets
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from odt_sim.errors import CheckpointError, FileError

WITHOUT_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
"""The system's error numbers for flock on file systems without it: some of FUSE, and NFS without a lock daemon."""
FORBIDDING = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.EISDIR, errno.ENOTDIR)
"""Errors of writing that free space does not solve."""


def write_file(path: Path, content: bytes, *, secret: bool = False) -> None:
    """Write a file atomically, and create its folders: at any time, it contains either the old or the new content.

    The content goes to a temporary file in the same folder, which is synced and then renamed. Its random name prevents
    conflicts between processes and machines that share the folder.

    Args:
        path: The file.
        content: Its content.
        secret: Whether only this user may read it.

    Raises:
        FileError: The file cannot be written; the old content is untouched, and no temporary file is left.
    """
    try:
        _replace(path, content, 0o600 if secret else 0o666)
    except OSError as error:
        raise unwritable(path, error) from error


def refuse_source(output: Path, source: Path) -> None:
    """Refuse to overwrite the source with the output.

    Raises:
        FileError: Output and source are the same file.
    """
    if output.exists() and source.exists() and output.samefile(source):
        raise FileError(f"{output}: is the input file, which writing would overwrite; choose another output")


def temporary(names: str) -> str:
    """Return the pattern of temporary files of `write_file`, given a pattern of the target files' names."""
    return rf"\.(?:{names})\.[0-9a-f]{{8}}\.part"


def remove_temporaries(folder: Path, names: Iterable[str]) -> None:
    """Remove temporary files that killed writes of the named files left in a folder; no process may be writing these.

    Raises:
        FileError: A file cannot be removed.
    """
    left = re.compile(temporary("|".join(map(re.escape, names))))
    try:
        for path in folder.iterdir():
            if left.fullmatch(path.name) and path.is_file():
                path.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error


def sync_names(folder: Path) -> None:
    """Make the names in a folder durable; otherwise a power failure may undo a rename.

    Raises:
        FileError: The disk reports an error.
    """
    try:
        with _opened(folder) as descriptor:
            os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # from file systems that do not sync folders
            raise unwritable(folder, error) from error


def sync_content(descriptor: int) -> None:
    """Make the content of an open file durable.

    Raises:
        OSError: The disk reports an error.
    """
    getattr(os, "fdatasync", os.fsync)(descriptor)  # macOS has no fdatasync


def sync_file_system(folder: Path) -> None:
    """Make everything that was written to a folder's file system durable.

    Raises:
        FileError: The disk reports an error.
    """
    try:
        with _opened(folder) as descriptor:
            if not hasattr(_libc, "syncfs"):  # on macOS
                os.sync()
            elif _libc.syncfs(descriptor):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    except OSError as error:
        raise unwritable(folder, error) from error


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """Open a folder for the duration of a block."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def cache_folder(name: str) -> Path:
    """Return a folder below `$ODT_SIM_CACHE`, or below `~/.cache/odt_sim` by default.

    Raises:
        FileError: There is no home folder.
    """
    try:
        return Path(os.environ.get("ODT_SIM_CACHE") or "~/.cache/odt_sim").expanduser() / name
    except RuntimeError as error:
        raise FileError(f"cache: {str(error).rstrip('.')}; set ODT_SIM_CACHE to a writable folder") from error


def unwritable(path: Path, error: OSError, setting: str | None = None) -> FileError:
    """Return the error for a file that the system refused to write; `setting` names the setting with its path."""
    advice = "choose another location" if error.errno in FORBIDDING else "free space there, or choose another location"
    where = f"{setting}: {path}" if setting else str(path)
    return FileError(f"{where}: cannot write it ({error.strerror}); {advice}")


def missing(where: str) -> CheckpointError:
    """Return the error for a part of a checkpoint that does not exist."""
    return CheckpointError(f"{where}: no such checkpoint; restore it from a backup")


def _replace(path: Path, content: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


_libc = ctypes.CDLL(None, use_errno=True)


def rendered(template: str, *packages: str, **values: Any) -> str:
    """Return a page; a missing value of the template is an error.

    Args:
        template: The template's file name.
        *packages: The packages whose `templates` folders contain the template and its includes.
        **values: The values that the template shows.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    loader = ChoiceLoader([PackageLoader(package) for package in packages])
    templates = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    templates.filters["base64"] = lambda content: b64encode(content).decode()
    templates.filters["unbroken"] = lambda text: text.replace(" %", "\u00a0%")  # no line begins with a percent sign
    return str(templates.get_template(template).render(**values))
