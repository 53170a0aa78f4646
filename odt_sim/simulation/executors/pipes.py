"""Messages between a process and its forks: large arrays go through shared memory, everything else through a pipe."""

import mmap
import os
import pickle
from collections.abc import Sequence
from itertools import accumulate, chain
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from types import TracebackType
from typing import Any

SMALL = 1 << 16
"""The bytes of arrays up to which a whole message goes through the pipe, which holds several such messages."""

ALIGNMENT = 64
"""The alignment of arrays in memory, in bytes."""


class Packed:
    """A message, written once for any number of receivers.

    Its memory is freed when it is closed here and no receiver uses its arrays any more. It is a file without a name, so
    that it depends on no folder and a process that is killed leaves nothing behind.
    """

    def __init__(self, value: Any) -> None:
        """Write a message.

        Args:
            value: Any value that can be pickled.

        Raises:
            OSError: There is not enough memory.
        """
        arrays: list[memoryview] = []
        self._memory: int | None = None
        self._head = pickle.dumps(value, protocol=5, buffer_callback=lambda array: arrays.append(array.raw()))
        self._sizes = [array.nbytes for array in arrays]
        self._content = b""
        if sum(self._sizes) <= SMALL:
            self._content = b"".join(chain.from_iterable(map(_aligned, arrays)))
            return
        self._memory = os.memfd_create("odt_sim")
        try:
            with open(self._memory, "wb", closefd=False) as file:
                file.writelines(chain.from_iterable(map(_aligned, arrays)))
        except BaseException:
            self.close()
            raise

    def send(self, receiver: Connection) -> None:
        """Send the message to one receiver.

        Raises:
            OSError: The receiver has ended.
        """
        receiver.send((self._head, self._sizes, self._content))
        if self._memory is not None:
            send_handle(receiver, self._memory, None)

    def close(self) -> None:
        """Free the memory of this process."""
        if self._memory is not None:
            os.close(self._memory)
        self._memory = None

    def __enter__(self) -> "Packed":
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Free the memory."""
        self.close()


def send(receiver: Connection, value: Any) -> None:
    """Send a message to one receiver.

    Raises:
        OSError: There is not enough memory, or the receiver has ended.
    """
    with Packed(value) as packed:
        packed.send(receiver)


def receive(sender: Connection) -> Any:
    """Return the next message.

    Raises:
        EOFError: The sender has ended.
        OSError: The sender has ended.
    """
    head, sizes, content = sender.recv()
    if sum(sizes) <= SMALL:
        return pickle.loads(head, buffers=_parts(memoryview(bytearray(content)), sizes))
    handle = recv_handle(sender)
    try:
        mapped = mmap.mmap(handle, sum(map(_room, sizes)), access=mmap.ACCESS_COPY)
    finally:
        os.close(handle)
    return pickle.loads(head, buffers=_parts(memoryview(mapped), sizes))


def _room(size: int) -> int:
    return size + -size % ALIGNMENT


def _aligned(array: memoryview) -> tuple[memoryview, bytes]:
    """Return an array, and the bytes that fill its room."""
    return array, bytes(-array.nbytes % ALIGNMENT)


def _parts(memory: memoryview, sizes: Sequence[int]) -> list[memoryview]:
    starts = accumulate(map(_room, sizes), initial=0)
    return [memory[start : start + size] for start, size in zip(starts, sizes, strict=False)]
