"""Parquet files larger than memory, converted once, in batches of rows, to memory-mapped arrays."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from odt_sim.data.checks.dataset_checks import check
from odt_sim.data.dataset import Classes, Dataset
from odt_sim.data.sources.arrow_tables import ArrowTable, arrow, readable, rows_of_column
from odt_sim.data.sources.table_columns import (
    check_columns,
    columns_of,
    numeric_columns,
    written_as_integers,
)
from odt_sim.data.store.columns import Array
from odt_sim.data.store.folders import PIECE, Writer, files_of, rows_in, stored
from odt_sim.errors import DataError

LARGEST_PIECE = 1 << 16  # rows


def parquet(
    path: str | os.PathLike[str],
    target: str | list[str] | Mapping[str, str | list[str]],
    users: str | None = None,
    features: str | list[str] | Mapping[str, str | list[str]] | None = None,
    classes: Classes = None,
    times: str | None = None,
    store: str | None = None,
) -> Dataset:
    """Read Parquet files that may be larger than memory; needs `pip install 'odt_sim[tables]'`.

    The first use converts them to arrays in a store, which later runs and all processes of the machine share. A process
    then reads only the rows that it uses. Labels, user ids and times of all examples are kept in memory.

    Args:
        path: A file, or a folder of files with the same columns; `user=7/` in their paths is a column, too.
        target: The column to predict: integers are class labels; texts and booleans become class labels in sorted
            order; floats are regression targets; lists, or several columns, are one target with several values. A
            mapping by name gives several targets.
        users: The column of user ids, which stay as written in `user=007/`; None for none.
        features: The column of inputs, with lists of numbers of one shape; or the numeric columns that form the inputs,
            by default all others. A mapping by name gives several inputs.
        classes: The number of classes, for several targets a mapping by name; by default the largest label plus one.
        times: The column with the time of each example, as numbers or dates; None for none.
        store: The folder of stores; None for `stores` in `$ODT_SIM_CACHE` or `~/.cache/odt_sim`.

    Raises:
        ConfigurationError: The features are none, or contain the target.
        DataError: pyarrow is missing, a file cannot be read, lacks a column or a value, rows differ in shape, or there
            is no space for the store.
    """
    path = Path(path).expanduser().absolute()
    files = _Files.of(path, users)
    others = [name for name in (users, times) if name is not None]
    inputs = files.features((*columns_of(target), *others)) if features is None else features
    check_columns(files.where, files.schema.names, target, inputs, others)
    settings = {"x": inputs, "y": target, "users": users, "times": times}
    source = {"kind": "parquet", "path": str(path), "files": files_of(path.parent, files.paths), **settings}
    arrays = stored(files.where, source, lambda writer: files.fill(writer, inputs, target, users, times), store)
    x, y = rows_in(arrays, "x"), rows_in(arrays, "y")
    return check(Dataset(path.stem, x, y, arrays.get("users"), classes, times=arrays.get("times")))


@dataclass(frozen=True)
class _Files(ArrowTable):
    """Parquet files with a common schema.

    Attributes:
        where: The name of the files for errors.
        schema: The common schema, with the columns in the files' paths.
        paths: The files, sorted.
        dataset: All files as a `pyarrow.dataset.Dataset`.
    """

    where: str
    schema: Any
    paths: list[Path]
    dataset: Any

    @classmethod
    def of(cls, path: Path, users: str | None) -> "_Files":
        where = f"data {path}"
        paths = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
        if not paths or not paths[0].is_file():
            raise DataError(f"{where}: no Parquet file found; give the path of one, or of a folder that contains some")
        with readable(where):
            dataset = _dataset(path, paths, users) if path.is_dir() else _opened_all(paths)
        return cls(where, dataset.schema, paths, dataset)

    def features(self, others: Sequence[str]) -> list[str] | str:
        """Return the numeric columns except `others` and pandas' index; without any, the only remaining column."""
        types = arrow().types
        index = json.loads((self.schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
        left = [field for field in self.schema if field.name not in others and field.name not in index]
        numeric = {
            field.name: types.is_integer(field.type) or types.is_floating(field.type) or types.is_boolean(field.type)
            for field in left
        }
        alone = [*numeric.values()] == [False]
        return left[0].name if alone else numeric_columns(self.where, numeric)

    def column(self, name: str) -> Any:
        """Return a whole column."""
        return self.dataset.to_table(columns=[name], use_threads=False).column(name)

    def pieces(self, writer: Writer, array: str, columns: str | Sequence[str]) -> Iterator[tuple[str, Array]]:
        """Yield the rows of an array."""
        names = [*dict.fromkeys(columns_of(columns))]
        for fragment in self.dataset.get_fragments():
            in_path = arrow("pyarrow.dataset").get_partition_keys(fragment.partition_expression)
            start, in_file = 0, [name for name in names if name not in in_path]
            # Unlike the fragment, a file decodes only the rows that are read, not whole row groups.
            with (
                readable(f"data {fragment.path}"),
                arrow("pyarrow.parquet").ParquetFile(fragment.path, memory_map=True, pre_buffer=False) as file,
            ):
                for batch in file.iter_batches(_rows_at_once(file.metadata), columns=in_file, use_threads=False):
                    where = f"data {fragment.path}, rows {start}..{start + len(batch) - 1}"
                    repeated = {name: arrow().array([in_path[name]] * len(batch)) for name in names if name in in_path}
                    yield where, _rows({**repeated, **{name: batch.column(name) for name in in_file}}, columns, where)
                    start += len(batch)


def _dataset(folder: Path, paths: Sequence[Path], users: str | None) -> Any:
    """Return the files of a folder as a `pyarrow.dataset.Dataset`; user ids in paths are text unless all are integers.

    Arrow reads `user=007` and `user=0x7` as 7, which may be a different user.
    """
    partitioning, base = arrow("pyarrow.dataset").partitioning, str(folder)
    dataset = _opened_all(paths, partitioning=partitioning(flavor="hive"), partition_base_dir=base)
    types = dataset.partitioning.schema
    parts = {part for path in paths for part in path.relative_to(folder).parts if part.startswith(f"{users}=")}
    if users not in types.names or written_as_integers(part.removeprefix(f"{users}=") for part in parts):
        return dataset
    types = types.set(types.get_field_index(users), arrow().field(users, arrow().string()))
    return _opened_all(paths, partitioning=partitioning(types, flavor="hive"), partition_base_dir=base)


def _opened_all(paths: Sequence[Path], **options: Any) -> Any:
    return arrow("pyarrow.dataset").dataset([str(each) for each in paths], format="parquet", **options)


def _rows_at_once(metadata: Any) -> int:
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    size = sum(group.total_byte_size for group in groups) // max(metadata.num_rows, 1)
    return int(min(max(PIECE // max(size, 1), 1), LARGEST_PIECE))


def _rows(batch: Mapping[str, Any], columns: str | Sequence[str], where: str) -> Array:
    """Return the rows of a column, or of several numeric columns stacked along the last axis."""
    if isinstance(columns, str) or len(columns) == 1:
        [name] = columns_of(columns)
        rows = rows_of_column(batch[name], f"{where}: column {name!r}")
        return rows if isinstance(columns, str) or rows.ndim > 1 else rows[:, np.newaxis].astype(np.float32)
    arrays = [rows_of_column(batch[name], f"{where}: column {name!r}") for name in columns]
    for name, array in zip(columns, arrays, strict=True):
        if array.ndim > 1 or array.dtype.kind not in "iufb":
            raise DataError(f"{where}: column {name!r} is not a column of numbers; name it alone, or encode it")
    return np.stack([array.astype(np.float32) for array in arrays], axis=1)
