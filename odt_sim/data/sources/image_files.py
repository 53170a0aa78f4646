"""Folders of files by user and class, with one example per file, and images, which Pillow decodes once."""

import csv
import io
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from odt_sim.data.checks.dataset_checks import as_inputs, check
from odt_sim.data.dataset import Dataset
from odt_sim.data.sources.table_columns import numbered
from odt_sim.data.store.columns import Array, only
from odt_sim.data.store.folders import Writer, files_of, rows_in, stored
from odt_sim.errors import ConfigurationError, DataError


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
    labels, class_names = numbered(np.array([parts[-2] for parts in names]), classes, where)
    owners = [parts[0] for parts in names] if depth == 3 else None
    if users is not None:
        table = _users(Path(users).expanduser())
        if missing := [name for parts in names if (name := "/".join(parts)) not in table]:
            raise DataError(f"data {users}: has no user for {missing[0]} and {len(missing) - 1} other files; add them")
        owners = [table["/".join(parts)] for parts in names]
    users_of_files = None if owners is None else np.array(owners, np.str_)
    return Files(folder, paths, labels, users_of_files, class_names)


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


ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"}
GRAY = ("1", "L", "LA")  # Pillow's modes


@dataclass(frozen=True)
class ImageFormat:
    """Format to which all images of a data set are converted.

    Attributes:
        size: Height and width in pixels to which images are resized; None if all have the same size.
        channels: 1 for gray, 3 for colour; None if all images have the same channels.
    """

    size: Sequence[int] | None = None
    channels: int | None = None

    advice = "set data.size=[height,width], and data.channels=1 or 3"

    def __post_init__(self) -> None:
        """Check the values."""
        if self.size is not None and (len(self.size) != 2 or min(self.size) < 1):
            raise ConfigurationError(f"data.size: expected [height,width], found {list(self.size)}")
        if self.channels not in (None, 1, 3):
            raise ConfigurationError(f"data.channels: expected 1, 3 or null, found {self.channels}")

    def decoded(self, content: Path | bytes, where: str) -> Array:
        """Return an image, rotated by its EXIF orientation, `[height, width, channels]` uint8.

        Args:
            content: The path of a file, or its content.
            where: The name for errors.

        Raises:
            DataError: It cannot be read.
        """
        from PIL import Image, ImageOps

        try:
            with Image.open(io.BytesIO(content) if isinstance(content, bytes) else content) as file:
                if file.mode.startswith(("I", "F")):
                    raise DataError(f"{where}: has pixels of mode {file.mode}, expected 8 bits per channel; convert it")
                channels = self.channels or (1 if file.mode in GRAY else 3)
                image = ImageOps.exif_transpose(file).convert("L" if channels == 1 else "RGB")
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise DataError(f"{where}: is not a readable image ({error}); replace or remove it") from error
        if self.size is not None and (image.height, image.width) != tuple(self.size):
            image = image.resize((self.size[1], self.size[0]), Image.Resampling.BILINEAR)
        return np.asarray(image).reshape(image.height, image.width, channels)


def images(
    path: str | os.PathLike[str],
    users: str | None = None,
    size: Sequence[int] | None = None,
    channels: int | None = None,
    store: str | None = None,
    classes: Sequence[str] | None = None,
) -> Dataset:
    """Read a folder of images, `USER/CLASS/FILE` or `CLASS/FILE`; they are decoded once, into a store.

    `x` is `[examples, height, width, channels]` float32 in 0..1, and `y` the index of the class.

    Args:
        path: The folder.
        users: A `.csv` table with the columns `file`, relative to the folder, and `user`; None if the folders name the
            users.
        size: The height and width in pixels to which images are resized; null if all have the same size.
        channels: 1 for gray, 3 for colour; null if all images have the same number.
        store: The folder of stores; null for `stores` in `$ODT_SIM_CACHE` or `~/.cache/odt_sim`.
        classes: All classes in the order of their indices; null for the sorted names of the folders.

    Raises:
        ConfigurationError: The size or the channels are invalid.
        DataError: There are no images, one cannot be read or has another class, or they differ in shape.
    """
    if isinstance(size, int):
        raise ConfigurationError(f"data.size: expected [height,width], found {size}; write [{size},{size}]")
    format = ImageFormat(None if size is None else list(size), channels)
    return decoded_files(path, "images", ENDINGS, users, format, store, classes)


def decoded_files(
    path: str | os.PathLike[str],
    kind: str,
    endings: set[str],
    users: str | None,
    format: Any,
    store: str | None,
    classes: Sequence[str] | None,
) -> Dataset:
    """Return a data set of files, which are decoded once into a store.

    Args:
        path: The folder.
        kind: The kind of files, such as `images`.
        endings: The endings of their names.
        users: A table of users, or None.
        format: An `ImageFormat` or `AudioFormat`.
        store: The folder of stores, or None.
        classes: All classes in their order, or None.
    """
    files = files_by_user(path, endings, users, classes)

    def decoded() -> Iterator[tuple[str, Array]]:
        for file in files.paths:
            yield str(file), format.decoded(file, f"data {file}")

    def fill(writer: Writer) -> None:
        for where, rows in writer.pieces(decoded(), format.advice):
            writer.add("x", as_inputs(where, "x", rows))

    where = f"data {files.folder}"
    source = {"kind": kind, "path": str(files.folder), "files": files_of(files.folder, files.paths), **asdict(format)}
    x = only(rows_in(stored(where, source, fill, store), "x"), where, "")
    classes = files.classes
    return check(Dataset(files.folder.name, x, files.labels, files.users, len(classes), class_names=classes))
