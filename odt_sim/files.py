"""Files that are written whole or not at all."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from odt_sim.errors import FileError


def write_file(path: Path, content: bytes) -> None:
    """Writes a file, and its folders, so that whatever happens it holds its earlier content or the whole new one.

    The content goes beside it under a name of its own, which also keeps processes and machines apart that share the
    folder, is synced, and then takes the file's place.

    Raises:
        FileError: The file cannot be written; what was there before is untouched, and nothing is left beside it.
    """
    try:
        _replace(path, content)
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> FileError:
    """Returns the error that says which file the system refused to write."""
    return FileError(f"{path}: cannot write it ({error.strerror}); make room there or choose another place")


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
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
