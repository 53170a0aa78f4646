"""Objects in memory that a process shares with its forks."""

import mmap
import os
import pickle
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

APART = 1 << 36
"""Bytes between two numbers; memory is used only where something was written."""

PIECE = 1 << 16
"""Memory is allocated and mapped in multiples of so many bytes."""

SMALL = 1 << 10
"""Bytes below which an array is part of the pickled object."""

ALIGNED = 64
"""Arrays begin at multiples of so many bytes."""

SIZES = struct.Struct("=qq")
"""What an object begins with: the bytes of the pickled object, and the number of arrays, whose sizes follow."""


class Mailbox:
    """Objects by number, each of any size. Who writes and who reads must agree on when.

    The memory of a number is used again by its next object, and freed when the last process that has the mailbox ends.
    """

    def __init__(self) -> None:
        """Create an empty mailbox."""
        self._file = os.memfd_create("odt_sim")
        self._mapped: dict[int, memoryview] = {}

    def write(self, number: int, value: Any, further: Sequence[NDArray[Any]] = ()) -> None:
        """Write an object in place of an earlier one of this number.

        Args:
            number: Its number.
            value: The object.
            further: Contiguous arrays, whose bytes the reader gets beside the object: numpy's pickling takes longer.

        Raises:
            OSError: There is not enough memory.
        """
        arrays: list[memoryview] = []

        def is_small(array: pickle.PickleBuffer) -> bool:
            content = array.raw()
            if content.nbytes < SMALL:
                return True
            arrays.append(content)
            return False

        head = pickle.dumps(value, protocol=5, buffer_callback=is_small)
        arrays += [array.reshape(-1).view(np.uint8).data for array in further]
        sizes = [array.nbytes for array in arrays]
        begin, end = _head(len(head), len(sizes))
        places = _places(end, sizes)
        mapped = self._of(number, places[-1].stop if places else end, allocates=True)
        mapped[:begin] = SIZES.pack(len(head), len(sizes)) + struct.pack(f"={len(sizes)}q", *sizes)
        mapped[begin:end] = head
        for array, place in zip(arrays, places, strict=True):
            mapped[place] = array

    def read(self, number: int) -> tuple[Any, Iterator[Any]]:
        """Return copies of the object of a number and of its further arrays' bytes, which are read one by one."""
        return self._read(number, bytearray)

    def view(self, number: int) -> tuple[Any, Iterator[Any]]:
        """Return the same, with large arrays that are read-only and valid until the number is written again."""
        return self._read(number, memoryview.toreadonly)

    def close(self) -> None:
        """Give the memory back, once other processes have ended and no view is left."""
        self._mapped.clear()
        os.close(self._file)

    def _read(self, number: int, array: Callable[[memoryview], Any]) -> tuple[Any, Iterator[Any]]:
        mapped = self._of(number, PIECE)
        size, count = SIZES.unpack_from(mapped)
        begin, end = _head(size, count)
        mapped = self._of(number, end)
        if not count:
            return pickle.loads(mapped[begin:end]), iter(())
        places = _places(end, struct.unpack_from(f"={count}q", mapped, SIZES.size))
        mapped = self._of(number, places[-1].stop)
        arrays = (array(mapped[place]) for place in places)
        return pickle.loads(mapped[begin:end], buffers=arrays), arrays

    def _of(self, number: int, size: int, *, allocates: bool = False) -> memoryview:
        """Return at least some bytes of the memory of a number, which only the writer allocates."""
        mapped = self._mapped.get(number)
        if mapped is None or len(mapped) < size:
            size, start = size + -size % PIECE, number * APART
            if allocates:
                os.posix_fallocate(self._file, start, size)  # memory that is short is an error here, a signal later
            mapped = self._mapped[number] = memoryview(mmap.mmap(self._file, size, offset=start))
        return mapped


def _head(size: int, arrays: int) -> tuple[int, int]:
    """Return where the pickled object of a size begins and ends, behind the sizes of so many arrays."""
    begin = SIZES.size + 8 * arrays
    return begin, begin + size


def _places(begin: int, sizes: Sequence[int]) -> list[slice]:
    """Return where arrays lie behind what ends at `begin`."""
    places = []
    for size in sizes:
        begin += -begin % ALIGNED
        places.append(slice(begin, begin + size))
        begin += size
    return places
