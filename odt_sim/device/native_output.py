"""Suppression of native code's output."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

_one_at_a_time = RLock()  # a second thread would save and restore the replaced standard error


@contextmanager
def quiet() -> Iterator[None]:
    """Discard standard error of the process; LiteRT's first interpreter prints a line that no setting turns off."""
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
