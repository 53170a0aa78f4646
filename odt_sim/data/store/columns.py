"""Named arrays with a common first axis, used like one array of rows, and memory-mapped arrays."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from odt_sim.errors import DataError
from odt_sim.model.contract.names import full
from odt_sim.model.weights import Array as Array
from odt_sim.model.weights import read_only_array


@dataclass(frozen=True, eq=False)
class Columns:
    """Read-only arrays by name, for models with several inputs or targets.

    `len(columns)` is the number of rows, `columns[rows]` selects rows of all arrays, and `columns["name"]` returns one
    array. The names of arrays from a tuple are their positions `0`, `1`, ... until `named` replaces them.

    Attributes:
        names: The names, in order.
        arrays: The arrays, each `[rows, ...]`, in the same order.
    """

    names: tuple[str, ...]
    arrays: tuple[Array, ...]

    def __post_init__(self) -> None:
        """Make the arrays read-only."""
        object.__setattr__(self, "arrays", tuple(read_only(array) for array in self.arrays))

    @classmethod
    def of(cls, values: "Columns | Mapping[str, Any] | Sequence[Any]", where: str) -> "Columns":
        """Return columns from a mapping by name, or from a tuple by position.

        Args:
            values: The arrays, each `[rows, ...]`.
            where: The name for errors, such as `data ratings, x`.

        Raises:
            DataError: There are no arrays, a name is not a string, or the lengths differ.
        """
        if isinstance(values, Columns):
            return values
        pairs = dict(values) if isinstance(values, Mapping) else {str(i): value for i, value in enumerate(values)}
        if not pairs or not all(isinstance(name, str) for name in pairs):
            raise DataError(f"{where}: expected arrays by name, found {', '.join(map(repr, pairs)) or 'none'}")
        arrays = tuple(as_array(value, f"{where}, {name}") for name, value in pairs.items())
        columns = cls(tuple(pairs), arrays)
        if any(array.ndim == 0 for array in arrays) or len({len(array) for array in arrays}) > 1:
            raise DataError(f"{where}: lengths differ: {columns.shapes}; each array needs one row per example")
        return columns

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.arrays[0])

    @overload
    def __getitem__(self, rows: str) -> Array: ...

    @overload
    def __getitem__(self, rows: Any) -> "Columns": ...

    def __getitem__(self, rows: Any) -> "Columns | Array":
        """Return the selected rows of all arrays, or the array with a name."""
        if isinstance(rows, str):
            return self.column(rows)
        return Columns(self.names, tuple(array[rows] for array in self.arrays))

    def items(self) -> Iterator[tuple[str, Array]]:
        """Yield names and arrays, in order."""
        return zip(self.names, self.arrays, strict=True)

    def column(self, name: str) -> Array:
        """Return the array with a name.

        Raises:
            KeyError: No array has the name.
        """
        if name not in self.names:
            raise KeyError(f"{name!r}: expected one of {', '.join(self.names)}")
        return self.arrays[self.names.index(name)]

    def named(self, names: Sequence[str], where: str) -> "Columns":
        """Return the columns in the order of a model's names; arrays from a tuple get the names by position.

        Raises:
            DataError: Names are missing or unknown, or the numbers differ.
        """
        if self.names == tuple(names):
            return self
        if self.positional and len(self.names) == len(names):
            return Columns(tuple(names), self.arrays)
        if set(self.names) != set(names):
            present = f"{len(self.names)} without names" if self.positional else ", ".join(self.names)
            raise DataError(f"{where}: expected the arrays {', '.join(names)}, found {present}; use the same names")
        return Columns(tuple(names), tuple(self.column(name) for name in names))

    @property
    def positional(self) -> bool:
        """Whether the arrays have positions instead of names."""
        return self.names == tuple(str(i) for i in range(len(self.names)))

    @property
    def shapes(self) -> str:
        """Names and shapes, for messages."""
        return ", ".join(f"{name} {list(array.shape)}" for name, array in self.items())

    @property
    def nbytes(self) -> int:
        """The size of all arrays in bytes."""
        return sum(array.nbytes for array in self.arrays)


Rows = Array | Columns
"""One array `[rows, ...]`, or several as `Columns`."""


def several(values: Any) -> bool:
    """Return whether values are several arrays: columns, a mapping, or a tuple of arrays."""
    return isinstance(values, Columns | Mapping) or (
        isinstance(values, tuple) and any(hasattr(value, "shape") for value in values)
    )


def arrays_of(rows: Rows) -> dict[str, Array]:
    """Return the arrays by name; a single array has the empty name."""
    return dict(rows.items()) if isinstance(rows, Columns) else {"": rows}


def only(rows: Rows, where: str, advice: str) -> Array:
    """Return rows that must be a single array.

    Raises:
        DataError: There are several arrays; the message ends with the advice.
    """
    if isinstance(rows, Columns):
        raise DataError(f"{where} has the arrays {', '.join(rows.names)}, expected a single array; {advice}")
    return rows


def rows_of(arrays: Mapping[str, Array]) -> Rows:
    """Return arrays by name as rows, the inverse of `arrays_of`."""
    return arrays[""] if "" in arrays else Columns(tuple(arrays), tuple(arrays.values()))


@overload
def rows_at(rows: Array, positions: NDArray[np.int64]) -> Array: ...


@overload
def rows_at(rows: Rows, positions: NDArray[np.int64]) -> Rows: ...


def rows_at(rows: Rows, positions: NDArray[np.int64]) -> Rows:
    """Return the rows at some positions.

    `take` needs half the time of indexing, but would first copy a non-contiguous array completely.
    """
    if isinstance(rows, Columns) or not rows.flags.c_contiguous:
        return rows[positions]
    return rows.take(positions, 0)


def prefixed(prefix: str, rows: Rows) -> dict[str, Array]:
    """Return arrays by their names in signatures: `{"x": rows}`, or `x_<name>` for each of several arrays."""
    if isinstance(rows, Columns):
        return {full(prefix, name): array for name, array in rows.items()}
    return {prefix: rows}


@overload
def read_only(rows: Array) -> Array: ...


@overload
def read_only(rows: Rows) -> Rows: ...


def read_only(rows: Rows) -> Rows:
    """Return a read-only view of an array; read-only arrays and columns are returned themselves."""
    return rows if isinstance(rows, Columns) else read_only_array(rows)


def as_array(values: Any, where: str) -> Array:
    """Return values as an array.

    Raises:
        DataError: Rows differ in length.
    """
    try:
        return np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise DataError(f"{where}: {error}") from error


class Mapped(np.ndarray[Any, Any]):
    """Read-only array in an `.npy` file; a process reads only the rows that it selects.

    Pickling writes the path, so that the processes of a machine share the file's pages. Selected rows are plain arrays.
    Values are checked when the file is written.

    Attributes:
        path: The file; None for views and copies.
        digest: A hash of the values; empty for views and copies.
    """

    path: Path | None
    digest: str

    @classmethod
    def open(cls, path: Path, digest: str) -> "Mapped":
        """Return the array of a file.

        Args:
            path: The file.
            digest: The hash of its values.

        Raises:
            DataError: The file is missing or damaged.
        """
        try:
            mapped: Mapped = np.load(path, mmap_mode="r", allow_pickle=False).view(cls)
        except (OSError, ValueError) as error:
            raise DataError(
                f"data {path}: cannot be opened on this machine ({error}); on a cluster, set data.store to a folder "
                "that all nodes share"
            ) from error
        mapped.path, mapped.digest = path, digest
        return mapped

    def __array_finalize__(self, _: object) -> None:
        """Clear path and digest, since a view or copy differs from the file."""
        self.path, self.digest = None, ""

    def __getitem__(self, rows: Any) -> Any:
        """Return the selected rows as a plain array."""
        return self.view(np.ndarray)[rows]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Return the path instead of the values."""
        return (Mapped.open, (self.path, self.digest)) if self.path else self.view(np.ndarray).__reduce_ex__(protocol)


def is_mapped(array: object) -> bool:
    """Return whether an array is a complete file of a store, and not a view or copy."""
    return isinstance(array, Mapped) and array.path is not None
