"""Arrow tables that may be larger than memory, converted to the arrays of a store; needs `pip install 'odt_sim[tables]'`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from odt_sim._support.system import package
from odt_sim._support.text import one_line
from odt_sim.data.checks.dataset_checks import as_inputs, as_numbers
from odt_sim.data.sources.table_columns import Named
from odt_sim.data.store.columns import Array
from odt_sim.data.store.folders import Writer
from odt_sim.errors import DataError
from odt_sim.model.contract.names import full


def arrow(module: str = "pyarrow") -> ModuleType:
    """Return pyarrow or one of its modules.

    Raises:
        DataError: It is not installed.
    """
    return package(module, "data: Parquet files need pyarrow", "tables", DataError)


class ArrowTable:
    """A table whose columns become arrays: those of one value per row at once, others in pieces.

    Attributes:
        where: The name of the table for errors.
        schema: The `pyarrow.Schema`.
    """

    where: str
    schema: Any

    def column(self, name: str) -> Any:
        """Return a whole column as a `pyarrow.ChunkedArray`."""
        raise NotImplementedError

    def pieces(self, writer: Writer, array: str, columns: str | Sequence[str]) -> Iterator[tuple[str, Array]]:
        """Yield the rows of an array in pieces, with the name of each piece for errors.

        Args:
            writer: The writer of the store.
            array: The name of the array.
            columns: The column of the array, or the numeric columns that form it.
        """
        raise NotImplementedError

    def fill(self, writer: Writer, x: Named, y: Named, users: str | None, times: str | None = None) -> None:
        """Write the arrays of a store.

        Args:
            writer: The writer.
            x: The columns of inputs.
            y: The columns of targets; texts become class labels in sorted order.
            users: The column of user ids, or None.
            times: The column of times, or None.

        Raises:
            DataError: A row has no value, or its shape differs.
        """
        if users is not None:
            writer.add("users", self._values(users))
        if times is not None:
            writer.add("times", self._times(times))
        for name, columns in {**_arrays("x", x), **_arrays("y", y)}.items():
            described = f"column {columns!r}"
            if name.startswith("y") and isinstance(columns, str) and not is_nested(self.schema.field(columns).type):
                writer.add(name, as_numbers(self.where, described, labels_of(self._values(columns))))
                continue
            converted = as_inputs if name.startswith("x") else as_numbers
            for where, rows in self.pieces(writer, name, columns):
                writer.add(name, converted(where, described, rows))

    def _values(self, column: str) -> Array:
        with readable(self.where):
            return values_of_column(self.column(column), f"{self.where}: column {column!r}")

    def _times(self, column: str) -> Array:
        times = self._values(column)
        if times.dtype.kind == "U":
            raise DataError(
                f"{self.where}: column {column!r} contains text such as {times[0]}, expected numbers or dates; "
                "convert dates with pandas.to_datetime"
            )
        return times


def _arrays(prefix: str, named: Named) -> dict[str, str | Sequence[str]]:
    """Return the columns of each array by the array's name in the store."""
    if isinstance(named, Mapping):
        return {full(prefix, name): columns for name, columns in named.items()}
    return {prefix: named}


@contextmanager
def readable(where: str) -> Iterator[None]:
    """Turn errors of pyarrow while a table is read into one line."""
    try:
        yield
    except (ValueError, OSError, NotImplementedError) as error:  # includes the errors of pyarrow
        raise DataError(f"{where}: cannot be read ({one_line(error)}); write it again") from error


def is_nested(kind: Any) -> bool:
    """Return whether values of a type are lists or tensors."""
    return bool(arrow().types.is_nested(kind)) or isinstance(kind, arrow().BaseExtensionType)


def rows_of_column(column: Any, where: str) -> Array:
    """Return a column of numbers, or of lists of numbers of one shape, as an array `[rows, ...]`.

    Args:
        column: A `pyarrow.Array`; nested lists and tensors become further axes.
        where: The name for errors, such as `data ratings.parquet: column 'pixels'`.

    Raises:
        DataError: A row has no value, or its length differs.
    """
    types, rows = arrow().types, len(column)
    if isinstance(column.type, arrow().FixedShapeTensorType):
        _check_complete(column, where)
        return np.asarray(column.to_numpy_ndarray())
    inner, shape = _storage(column), list[int]()
    while types.is_list(inner.type) or types.is_large_list(inner.type) or types.is_fixed_size_list(inner.type):
        _check_complete(inner, where)
        shape.append(_length(inner, where))
        inner = _storage(inner.flatten())
    _check_complete(inner, where)
    return np.asarray(inner.to_numpy(zero_copy_only=False)).reshape(rows, *shape)


def padded_lists(column: Any, length: int, where: str) -> Array:
    """Return a column of lists of numbers as an array `[rows, length]`; lists are cut, or padded with zeros.

    Args:
        column: A `pyarrow.Array`.
        length: The length of each row.
        where: The name for errors.

    Raises:
        DataError: A row has no value.
    """
    _check_complete(column, where)
    ends = np.cumsum(arrow("pyarrow.compute").list_value_length(column).to_numpy(zero_copy_only=False))
    values = rows_of_column(column.flatten(), where)
    rows = np.zeros((len(column), length), values.dtype)
    for row, start, end in zip(rows, [0, *ends], ends, strict=False):
        row[: end - start] = values[start : min(end, start + length)]
    return rows


def values_of_column(column: Any, where: str) -> Array:
    """Return a column of ids, labels or times as an array `[rows]` of integers, floats or strings.

    Dates become nanoseconds. Booleans and categories become strings.

    Args:
        column: A `pyarrow.ChunkedArray` without nested values.
        where: The name for errors.

    Raises:
        DataError: A row has no value.
    """
    types = arrow().types
    _check_complete(column, where)
    if types.is_temporal(column.type):
        column = column.cast(arrow().timestamp("ns")).cast(arrow().int64())
    if types.is_integer(column.type) or types.is_floating(column.type):
        return np.asarray(column.to_numpy())
    if types.is_nested(column.type) or types.is_binary(column.type):
        raise DataError(f"{where} has type {column.type}, expected numbers or text; choose another column")
    encoded = column if types.is_dictionary(column.type) else column.dictionary_encode()
    encoded = encoded.unify_dictionaries()  # each string is stored once, instead of as a Python object per row
    names = np.array([str(each) for each in encoded.chunk(0).dictionary.to_pylist()], np.str_)
    return np.asarray(names[np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])])


def labels_of(values: Array) -> Array:
    """Return strings as class labels in sorted order, and numbers unchanged."""
    return np.unique(values, return_inverse=True)[1] if values.dtype.kind == "U" else values


def _storage(column: Any) -> Any:
    return column.storage if isinstance(column, arrow().ExtensionArray) else column


def _check_complete(column: Any, where: str) -> None:
    if column.null_count:
        raise DataError(f"{where} has missing values; fill or remove those rows")


def _length(lists: Any, where: str) -> int:
    """Return the common length of lists."""
    lengths = np.unique(arrow("pyarrow.compute").list_value_length(lists).to_numpy(zero_copy_only=False))
    if len(lengths) > 1:
        raise DataError(
            f"{where} has lists of {lengths[0]} to {lengths[-1]} values, expected equal lengths; pad or cut them"
        )
    return int(lengths[0]) if len(lengths) else 0
