"""Objects in memory shared by a process and its forks."""

import mmap
import os
import pickle
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

APART = 1 << 36
"""The distance in bytes between the memory of two numbers; only written memory is allocated."""

PIECE = 1 << 16
"""The granularity in bytes of allocating and mapping memory."""

SMALL = 1 << 10
"""The size in bytes below which an array is part of the pickled object."""

ALIGNED = 64
"""The alignment of arrays in bytes."""

SIZES = struct.Struct("=qq")
"""The header of an object: the bytes of the pickled object, and the number of arrays; the arrays' sizes follow."""


class Mailbox:
    """Objects of any size, by number. Writers and readers must synchronize elsewhere.

    The next object of a number reuses its memory, which is freed when the last process that has the mailbox ends.
    """

    def __init__(self) -> None:
        """Create an empty mailbox."""
        self._file = os.memfd_create("odt_sim")
        self._mapped: dict[int, memoryview] = {}

    def write(self, number: int, value: Any, further: Sequence[NDArray[Any]] = ()) -> None:
        """Write an object, which replaces the earlier object of this number.

        Args:
            number: The object's number.
            value: The object.
            further: Contiguous arrays, whose bytes are read separately from the object: numpy's pickling takes longer.

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
        """Return copies of a number's object and of the bytes of its further arrays, which are read one by one."""
        return self._read(number, bytearray)

    def view(self, number: int) -> tuple[Any, Iterator[Any]]:
        """Return the same, but with large arrays as read-only views, valid until the number is written again."""
        return self._read(number, memoryview.toreadonly)

    def close(self) -> None:
        """Free the memory, once other processes have ended and no view is left."""
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
        """Return at least `size` bytes of the memory of a number; only the writer allocates it."""
        mapped = self._mapped.get(number)
        if mapped is None or len(mapped) < size:
            size, start = size + -size % PIECE, number * APART
            if allocates:
                os.posix_fallocate(self._file, start, size)  # out of memory is an error here, but a signal later
            mapped = self._mapped[number] = memoryview(mmap.mmap(self._file, size, offset=start))
        return mapped


def _head(size: int, arrays: int) -> tuple[int, int]:
    """Return where a pickled object of `size` bytes begins and ends, behind the sizes of the arrays."""
    begin = SIZES.size + 8 * arrays
    return begin, begin + size


def _places(begin: int, sizes: Sequence[int]) -> list[slice]:
    """Return the positions of arrays of these sizes, aligned, from `begin` on."""
    places = []
    for size in sizes:
        begin += -begin % ALIGNED
        places.append(slice(begin, begin + size))
        begin += size
    return places
