"""Folders of files by user and class, with one example per file."""

import csv
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from odt_sim.data.class_names import numbered
from odt_sim.data.dataset import Array
from odt_sim.errors import DataError


class Files(NamedTuple):
    """Files of a data set.

    Attributes:
        folder: The folder that contains the files.
        paths: The files, sorted.
        labels: `[files]` int32, the class of each file: the index of its folder's name among the classes.
        users: `[files]` strings, the user of each file; None if there are no users.
        classes: The names of the classes in the order of their numbers.
    """

    folder: Path
    paths: list[Path]
    labels: Array
    users: Array | None
    classes: tuple[str, ...]


def files_by_user(
    folder: str | os.PathLike[str],
    endings: Collection[str],
    users: str | os.PathLike[str] | None,
    classes: Sequence[str] | None = None,
) -> Files:
    """Return the files of `USER/CLASS/FILE`, or of `CLASS/FILE`.

    Args:
        folder: The folder. Files with other endings, and those whose names begin with a dot, are ignored.
        endings: The endings of the files, in lower case.
        users: A `.csv` table with the columns `file`, relative to the folder, and `user`; None if the folders name the
            users.
        classes: All classes in the order of their numbers; None for the sorted names of the folders.

    Raises:
        DataError: There is no such file, a file is at a different depth or of another class, or the table lacks a file.
    """
    folder = Path(folder).expanduser().absolute()
    where = f"data {folder}"
    if folder.is_file():
        raise DataError(f"{where}: expected a folder of USER/CLASS/FILE, found a file; give the path of the folder")
    paths = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in endings and path.name[0] != "."]
    if not paths:
        raise DataError(
            f"{where}: contains no file that ends in {', '.join(sorted(endings))}; give a folder of USER/CLASS/FILE"
        )
    names = [path.relative_to(folder).parts for path in paths]
    depth = len(names[0])
    for parts in names:
        if len(parts) not in (2, 3) or len(parts) != depth:
            raise DataError(
                f"{where}: expected USER/CLASS/FILE or CLASS/FILE for all files, found {'/'.join(parts)}; move it"
            )
    labels, known = numbered(np.array([parts[-2] for parts in names]), classes, where)
    owners = [parts[0] for parts in names] if depth == 3 else None
    if users is not None:
        table = _users(Path(users).expanduser())
        if missing := [name for parts in names if (name := "/".join(parts)) not in table]:
            raise DataError(f"data {users}: has no user for {missing[0]} and {len(missing) - 1} other files; add them")
        owners = [table["/".join(parts)] for parts in names]
    found = None if owners is None else np.array(owners, np.str_)
    return Files(folder, paths, labels, found, known)


def _users(path: Path) -> dict[str, str]:
    """Return the user of each file in a table."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            if missing := {"file", "user"} - {*(rows.fieldnames or ())}:
                raise DataError(f"data {path}: has no column {sorted(missing)[0]!r}; name its columns file and user")
            return {row["file"]: row["user"] for row in rows}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"data {path}: cannot be read ({error}); give a .csv table of file and user") from error
