"""Hugging Face data sets on disk, converted once to memory-mapped arrays; needs `pip install 'odt_sim[datasets]'`."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from odt_sim._support.system import package
from odt_sim.data.checks.dataset_checks import check
from odt_sim.data.dataset import Dataset
from odt_sim.data.sources.arrow_tables import ArrowTable, is_nested, padded_lists, rows_of_column
from odt_sim.data.sources.audio_files import AudioFormat, Transform
from odt_sim.data.sources.image_files import ImageFormat
from odt_sim.data.sources.table_columns import check_known, columns_of
from odt_sim.data.store.columns import Array
from odt_sim.data.store.folders import Writer, files_of, rows_in, stored
from odt_sim.errors import DataError

ROWS = 256  # read at once


def hugging_face(dataset: Any, x: str, y: str, users: str | None = None, classes: int | None = None) -> Dataset:
    """Convert columns of a `datasets.Dataset`, such as one split of the result of `datasets.load_dataset`.

    Args:
        dataset: The data set; all rows of the columns are read into memory.
        x: The column of inputs, all of one shape; images are decoded.
        y: The column of targets.
        users: The column of user ids; None for none.
        classes: The number of classes; by default that of the column's `ClassLabel`, else the largest label plus one.

    Raises:
        DataError: The object is not such a data set or lacks a column, or its rows differ in shape.
    """
    if not (hasattr(dataset, "column_names") and hasattr(dataset, "with_format")):
        raise DataError(
            f"data: expected a datasets.Dataset, found a {type(dataset).__name__}; choose one of its splits"
        )
    name = getattr(dataset.info, "dataset_name", None) or "hugging_face"
    columns = [column for column in (x, y, users) if column is not None]
    check_known(f"data {name}", columns, dataset.column_names)
    rows = dataset.select_columns(columns).with_format("numpy", dtype=None)[:]  # pixels stay uint8
    arrays = {column: np.asarray(rows[column]) for column in columns}
    if arrays[x].dtype == object:
        raise DataError(f"data {name}: rows of column {x!r} differ in shape or are not numeric; resize or encode them")
    if classes is None:
        classes = getattr(dataset.features[y], "num_classes", None)
    owners = None if users is None else arrays[users]
    if owners is not None and owners.dtype.kind not in "iuSU":
        owners = owners.astype(np.str_)
    return check(Dataset(name, arrays[x], arrays[y], owners, classes))


def saved_hugging_face(
    path: str | os.PathLike[str],
    x: str | Mapping[str, str],
    y: str,
    users: str | None = None,
    classes: int | None = None,
    split: str | None = None,
    length: int | None = None,
    size: Sequence[int] | None = None,
    channels: int | None = None,
    rate: int = AudioFormat.rate,
    seconds: float | None = None,
    transform: Transform | None = None,
    store: str | None = None,
) -> Dataset:
    """Read a folder written by `save_to_disk` of Hugging Face's `datasets`; it may be larger than memory.

    Columns with the features `Image` and `Audio` are decoded as in `images` and `audio`; others contain numbers or
    lists of them, such as token ids.

    Args:
        path: The folder.
        x: The column of inputs; a mapping by name gives several inputs.
        y: The column of targets: integers and texts are class labels, floats are regression targets.
        users: The column of user ids; null for none.
        classes: The number of classes; null for that of the column's `ClassLabel`, else the largest label plus one.
        split: The split to read if the folder has several, such as `train`.
        length: The length to which lists of an input are truncated or padded with zeros; null if all have the same
            length.
        size: The height and width in pixels to which images are resized; null if all have the same size.
        channels: 1 for gray, 3 for colour; null if all images have the same number.
        rate: The sampling rate of all sounds, in samples per second.
        seconds: The length to which sounds are cut or padded with zeros; null if all have the same length.
        transform: The features to compute instead of waveforms, `log_mel` or `mfcc`; null for waveforms.
        store: The folder of stores; null for `stores` in `$ODT_SIM_CACHE` or `~/.cache/odt_sim`.

    Raises:
        ConfigurationError: A setting is out of range.
        DataError: `datasets` is missing, the folder contains no data set, lacks a column or a value, or rows differ in
            shape.
    """
    path = Path(path).expanduser().absolute()
    where = f"data {path}"
    image = ImageFormat(None if size is None else list(size), channels)
    sound = AudioFormat(rate, seconds, transform)
    dataset = _loaded(path, split, where)
    check_known(where, [*columns_of(x), y, *([users] if users else [])], dataset.column_names)
    columns = _Saved(where, dataset.features.arrow_schema, dataset, length, image, sound)
    files = files_of(path, sorted(file for file in path.rglob("*") if file.is_file()))
    settings = {"split": split, "length": length, "image": asdict(image), "sound": asdict(sound)}
    source = {"kind": "hugging_face", "path": str(path), "files": files, "x": x, "y": y, "users": users, **settings}
    arrays = stored(where, source, lambda writer: columns.fill(writer, x, y, users), store)
    names = tuple(getattr(dataset.features[y], "names", ()))  # of a `ClassLabel`
    count = (len(names) or None) if classes is None else classes
    rows, targets, names = rows_in(arrays, "x"), rows_in(arrays, "y"), names if len(names) == count else ()
    return check(Dataset(path.name, rows, targets, arrays.get("users"), count, class_names=names))


@dataclass(frozen=True)
class _Saved(ArrowTable):
    """A saved data set.

    Attributes:
        where: The name of the data set for errors.
        schema: The schema of its Arrow tables.
        dataset: A `datasets.Dataset`.
        length: The length of lists of inputs; None if all have the same length.
        image: The format of images.
        audio: The format of sounds.
    """

    where: str
    schema: Any
    dataset: Any
    length: int | None
    image: ImageFormat
    audio: AudioFormat

    def column(self, name: str, rows: slice = slice(None)) -> Any:
        """Return rows of a column, without decoding."""
        return self.dataset.select_columns([name]).with_format("arrow")[rows].column(name)

    def pieces(self, writer: Writer, array: str, columns: str | Sequence[str]) -> Iterator[tuple[str, Array]]:
        """Yield the rows of an array; lists of an input are cut or padded, images and sounds are decoded."""
        [column] = columns_of(columns)
        forms: dict[str, ImageFormat | AudioFormat] = {"Image": self.image, "Audio": self.audio}
        if form := forms.get(type(self.dataset.features[column]).__name__):
            yield from writer.pieces(self._decoded(column, form), form.advice)
            return
        for start in range(0, len(self.dataset), ROWS):
            piece = self.column(column, slice(start, start + ROWS)).combine_chunks()
            where = f"{self.where}: rows {start}..{start + len(piece) - 1}"
            length = self.length if array != "y" and is_nested(piece.type) else None
            named = f"{where}: column {column!r}"
            yield where, rows_of_column(piece, named) if length is None else padded_lists(piece, length, named)

    def _decoded(self, column: str, form: ImageFormat | AudioFormat) -> Iterator[tuple[str, Array]]:
        for start in range(0, len(self.dataset), ROWS):
            for row, file in enumerate(self.column(column, slice(start, start + ROWS)).to_pylist(), start):
                where = f"row {row} of column {column!r}"
                content = (file or {}).get("bytes") or ((file or {}).get("path") and Path(file["path"]))
                if content is None:
                    raise DataError(f"{self.where}: {where} has no value; fill it or remove the row")
                yield where, form.decoded(content, f"{self.where}: {where}")


def _loaded(path: Path, split: str | None, where: str) -> Any:
    """Return a saved data set, or one split of it."""
    datasets = package("datasets", f"{where}: needs Hugging Face's datasets", "datasets", DataError)
    try:
        loaded = datasets.load_from_disk(str(path))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{where}: contains no data set ({error}); give a folder written by dataset.save_to_disk"
        ) from error
    if isinstance(loaded, Mapping):
        if split not in loaded:
            raise DataError(f"{where}: has the splits {', '.join(loaded)}, found {split}; choose one: data.split=...")
        return loaded[split]
    return loaded
