"""Objects in memory that a process shares with its forks."""

import mmap
import os
import pickle
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

APART = 1 << 36
"""Bytes between two numbers; memory is used only where something was written."""

SMALL = 1 << 14
"""Bytes that are read at once, and below which an array is part of the pickled object."""

ALIGNED = 64
"""Arrays begin at multiples of so many bytes."""

SIZES = struct.Struct("=qq")
"""What an object begins with: the bytes of the pickled object, and the number of arrays, whose bytes follow."""


class Mailbox:
    """Objects by number, each of any size. Who writes and who reads must agree on when.

    The memory of a number is used again by its next object, and freed when the last process that has the mailbox ends.
    """

    def __init__(self) -> None:
        """Create an empty mailbox."""
        self._file = os.memfd_create("odt_sim")
        self._mapped: dict[int, mmap.mmap] = {}

    def write(self, number: int, value: Any) -> None:
        """Write an object in place of an earlier one of this number."""
        arrays: list[memoryview] = []

        def is_small(array: pickle.PickleBuffer) -> bool:
            content = array.raw()
            if content.nbytes < SMALL:
                return True
            arrays.append(content)
            return False

        head = pickle.dumps(value, protocol=5, buffer_callback=is_small)
        sizes = [array.nbytes for array in arrays]
        start = SIZES.pack(len(head), len(sizes)) + struct.pack(f"={len(sizes)}q", *sizes) + head
        _move(os.pwritev, self._file, memoryview(start), number * APART)
        for array, place in zip(arrays, _places(len(start), sizes), strict=True):
            _move(os.pwritev, self._file, array, number * APART + place.start)

    def read(self, number: int) -> Any:
        """Return a copy of the object of a number."""

        def copy(place: slice) -> bytearray:
            array = bytearray(place.stop - place.start)
            _move(os.preadv, self._file, memoryview(array), number * APART + place.start)
            return array

        return self._read(number, lambda places: map(copy, places))

    def view(self, number: int) -> Any:
        """Return the object of a number, whose large arrays are read-only and valid until the number is written again."""
        return self._read(number, lambda places: self._views(number, places))

    def close(self) -> None:
        """Give the memory back, once other processes have ended and no view is left."""
        self._mapped.clear()
        os.close(self._file)

    def _read(self, number: int, arrays: Callable[[Sequence[slice]], Iterator[Any]]) -> Any:
        start = os.pread(self._file, SMALL, number * APART)
        size, count = SIZES.unpack_from(start)
        begin = SIZES.size + 8 * count
        if begin + size > len(start):
            start = os.pread(self._file, begin + size, number * APART)
        head = memoryview(start)[begin : begin + size]
        if not count:
            return pickle.loads(head)
        places = _places(begin + size, struct.unpack_from(f"={count}q", start, SIZES.size))
        return pickle.loads(head, buffers=arrays(places))

    def _views(self, number: int, places: Sequence[slice]) -> Iterator[memoryview]:
        mapped = self._mapped.get(number)
        if mapped is None or len(mapped) < places[-1].stop:
            size, offset = places[-1].stop, number * APART
            mapped = self._mapped[number] = mmap.mmap(self._file, size, access=mmap.ACCESS_READ, offset=offset)
        content = memoryview(mapped)
        return (content[place] for place in places)


def _places(begin: int, sizes: Sequence[int]) -> list[slice]:
    """Return where arrays lie behind what ends at `begin`."""
    places = []
    for size in sizes:
        begin += -begin % ALIGNED
        places.append(slice(begin, begin + size))
        begin += size
    return places


def _move(move: Callable[[int, Sequence[memoryview], int], int], file: int, content: memoryview, offset: int) -> None:
    """Write or read all of a content; Linux moves at most 2 GB in a call."""
    moved = 0
    while moved < len(content):
        moved += move(file, [content[moved:]], offset + moved)
