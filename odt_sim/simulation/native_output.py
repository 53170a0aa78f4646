"""Keeps what C code says off a live display."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """Drops what is written to the process's standard error while the block runs.

    It is meant for a moment: LiteRT greets the first interpreter of a process with a line about its delegate, which no
    setting turns off.
    """
    try:
        kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    except OSError:  # there is no standard error
        yield
        return
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
