"""Stores: folders of memory-mapped arrays, into which a data source is converted once.

The name of a store contains a hash of everything that its arrays depend on. A store is written to a temporary folder
and renamed, so that it is either complete or absent, and never changes. A changed source gets a new store.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from filelock import FileLock

from odt_sim._support.files import cache_folder, sync_file_system
from odt_sim.data.store.columns import Array, Mapped, Rows, rows_of
from odt_sim.errors import DataError
from odt_sim.model.contract.names import parts

FORMAT = 1  # version of the format; part of the names of stores
INDEX = "store.json"
PIECE = 8 << 20  # approximate number of bytes that are converted at once


class Writer:
    """Writer of arrays in pieces, so that only one piece is in memory."""

    def __init__(self, folder: Path, where: str) -> None:
        """Start writing into a folder.

        Args:
            folder: The folder.
            where: The name of the source for errors.
        """
        self._folder, self._where, self._files = folder, where, dict[str, _File]()

    def add(self, name: str, rows: Array) -> None:
        """Append rows to the array with a name.

        Raises:
            DataError: They differ in shape or dtype from earlier rows.
        """
        if name not in self._files:
            self._files[name] = _File(_path(self._folder, name), rows)
        self._files[name].add(rows, f"{self._where}: {name}")

    def pieces(self, rows: Iterable[tuple[str, Array]], advice: str) -> Iterator[tuple[str, Array]]:
        """Yield rows of one shape in pieces of a few megabytes, with the name of each piece for errors.

        Args:
            rows: The name of each row's file, for errors, and the row.
            advice: The advice in the error for rows that differ in shape.

        Raises:
            DataError: A row differs in shape from the first.
        """
        first, piece = None, list[tuple[str, Array]]()
        for name, row in rows:
            first = first or (name, row.shape)
            if row.shape != first[1]:
                raise DataError(
                    f"{self._where}: {name} has shape {list(row.shape)}, but {first[0]} has {list(first[1])}; {advice}"
                )
            piece.append((name, row))
            if len(piece) * row.nbytes >= PIECE:
                yield _stacked(piece)
                piece = []
        if piece:
            yield _stacked(piece)

    def close(self, source: Mapping[str, Any]) -> None:
        """Complete the files, and write the index."""
        digests = {name: file.complete() for name, file in self._files.items()}
        index = {"digests": digests, "source": source}
        (self._folder / INDEX).write_text(json.dumps(index, indent=1))


class _File:
    """An `.npy` file whose number of rows is not known in advance."""

    def __init__(self, path: Path, first: Array) -> None:
        self._path, self._dtype, self._row, self._rows = path, first.dtype, first.shape[1:], 0
        self._digest = hashlib.sha256()
        with path.open("xb") as file:
            self._write_header(file)

    def add(self, rows: Array, where: str) -> None:
        if rows.dtype != self._dtype or rows.shape[1:] != self._row:
            raise DataError(
                f"{where} has rows of {rows.dtype} {list(rows.shape[1:])} from row {self._rows} on, but of {self._dtype} "
                f"{list(self._row)} before; make them equal"
            )
        content = np.ascontiguousarray(rows).view(np.uint8).data if rows.size else b""
        with self._path.open("ab") as file:
            file.write(content)
        self._digest.update(content)
        self._rows += len(rows)

    def complete(self) -> str:
        """Write the number of rows into the header, and return the digest of the values."""
        with self._path.open("r+b") as file:
            self._write_header(file)
        return self._digest.hexdigest()[:32]

    def _write_header(
        self, file: IO[bytes]
    ) -> None:  # numpy pads it, so that up to 20 digits for the number of rows fit in
        header = np.lib.format.header_data_from_array_1_0(np.empty((0, *self._row), self._dtype))
        np.lib.format.write_array_header_2_0(file, {**header, "shape": (self._rows, *self._row)})


def _stacked(piece: Sequence[tuple[str, Array]]) -> tuple[str, Array]:
    return f"data {piece[0][0]} to {piece[-1][0]}", np.stack([row for _, row in piece])


def stored(
    where: str, source: Mapping[str, Any], fill: Callable[[Writer], None], folder: str | None = None
) -> dict[str, Mapped]:
    """Return the arrays of a source's store by name; write the store if it does not exist.

    Args:
        where: The name of the source for errors, such as `data ratings.parquet`.
        source: Everything that the arrays depend on, as plain values: files with their sizes and times, and settings.
        fill: A function that writes the arrays of the source.
        folder: The folder of stores; None for `stores` in `$ODT_SIM_CACHE` or `~/.cache/odt_sim`.

    Raises:
        DataError: The source cannot be converted, or the store cannot be written.
    """
    stores = Path(folder).expanduser().absolute() if folder else cache_folder("stores")
    store = stores / _name(where, source)
    if (arrays := _opened(store)) is not None:
        return arrays
    try:
        stores.mkdir(parents=True, exist_ok=True)
        with FileLock(store.with_suffix(".lock"), fallback_to_soft=False):  # released when the process exits
            if (arrays := _opened(store)) is None:
                _write(store, where, source, fill)
    except OSError as error:
        raise DataError(
            f"{where}: cannot be stored in {stores} ({error}); free space there, or set data.store to another folder"
        ) from error
    arrays = arrays or _opened(store)
    if arrays is None:
        raise DataError(f"{where}: cannot read its store {store}; remove the store")
    return arrays


def rows_in(arrays: Mapping[str, Mapped], name: str) -> Rows:
    """Return the array with a name, or all arrays whose names begin with it and an underscore as columns."""
    return rows_of(parts(arrays, name))


def files_of(folder: Path, files: Iterable[Path]) -> list[tuple[str, int, int]]:
    """Return the name relative to a folder, the size in bytes and the modification time in nanoseconds of each file."""
    described = ((path.relative_to(folder).as_posix(), path.stat()) for path in files)
    return [(name, status.st_size, status.st_mtime_ns) for name, status in described]


def _name(where: str, source: Mapping[str, Any]) -> str:
    text = json.dumps({"format": FORMAT, **source}, sort_keys=True, default=str)
    readable = re.sub(r"[^\w-]+", "-", Path(where.removeprefix("data ")).stem)[:40]
    return f"{readable}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.npy"


def _write(store: Path, where: str, source: Mapping[str, Any], fill: Callable[[Writer], None]) -> None:
    unfinished = store.with_name(f".{store.name}.{secrets.token_hex(4)}.part")
    unfinished.mkdir()
    try:
        writer = Writer(unfinished, where)
        fill(writer)
        writer.close(source)
        sync_file_system(unfinished)
        if store.exists():  # damaged
            shutil.rmtree(store)
        os.rename(unfinished, store)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _opened(store: Path) -> dict[str, Mapped] | None:
    """Return the arrays of a store; None if it is absent or damaged."""
    try:
        index = json.loads((store / INDEX).read_text())
        return {name: Mapped.open(_path(store, name), digest) for name, digest in index["digests"].items()}
    except (OSError, ValueError, KeyError, TypeError, DataError):
        return None
