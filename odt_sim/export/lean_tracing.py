"""Tracing without the Python stack of each op and without garbage collections over all of TensorFlow."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from tensorflow.python.util import tf_stack


@contextmanager
def lean_tracing() -> Iterator[None]:
    """Trace faster: all ops share one stack, and garbage collection is off.

    An op's stack appears only in errors of TensorFlow's runtime, and an export does not run the graphs that it traces.
    """
    collects, extract = gc.isenabled(), tf_stack.extract_stack
    tf_stack.extract_stack = cache(lambda stacklevel=1: extract(stacklevel))
    gc.disable()
    try:
        yield
    finally:
        tf_stack.extract_stack = extract
        if collects:
            gc.enable()
