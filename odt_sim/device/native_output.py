"""Silence the output of native code."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

_one_at_a_time = RLock()  # a second thread would keep the replaced standard error and put that back


@contextmanager
def quiet() -> Iterator[None]:
    """Drop what the process writes to standard error; LiteRT's first interpreter prints a line that no setting turns off."""
    with _one_at_a_time:
        try:
            kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        except OSError:  # standard error is closed
            yield
            return
        try:
            os.dup2(nowhere, 2)
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            os.close(nowhere)
