"""A queue of small messages between a process and its forks."""

import os
import select
import struct
from collections.abc import Iterable, Sequence

ROOM = 1000
"""The number of messages, of at most four integers, that always fit into a queue: a pipe has 64 kB."""


class Queue:
    """A queue of messages of a few integers; each message is read by one process.

    Pipes write and read a message atomically, see https://man7.org/linux/man-pages/man7/pipe.7.html: a killed process
    leaves neither a lock nor a partial message behind.

    Attributes:
        reader: The file descriptor to wait for.
        writer: The file descriptor to write to; once all processes have closed it, `get` fails.
    """

    def __init__(self, integers: int) -> None:
        """Open the queue.

        Args:
            integers: The number of integers in a message.
        """
        self._format = struct.Struct(f"={integers}q")
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)

    def put(self, messages: Iterable[Sequence[int]]) -> None:
        """Write messages; block while there is no room for them."""
        content = b"".join(self._format.pack(*message) for message in messages)
        most = select.PIPE_BUF // self._format.size * self._format.size
        for start in range(0, len(content), most):
            os.write(self.writer, content[start : start + most])

    def get(self) -> tuple[int, ...] | None:
        """Return the next message, or None if there is none now.

        Raises:
            EOFError: No process can write any more.
        """
        try:
            content = os.read(self.reader, self._format.size)
        except BlockingIOError:
            return None
        if not content:
            raise EOFError
        return self._format.unpack(content)

    def get_all(self) -> list[tuple[int, ...]]:
        """Return all waiting messages; only one process may read.

        Raises:
            EOFError: No process can write any more.
        """
        try:
            content = os.read(self.reader, ROOM * self._format.size)
        except BlockingIOError:
            return []
        if not content:
            raise EOFError
        return list(self._format.iter_unpack(content))

    def close(self) -> None:
        """Close both ends in this process."""
        os.close(self.reader)
        os.close(self.writer)
