"""Tracing without Python stacks and garbage collections."""

import gc

import pytest
import tensorflow as tf
from tensorflow.python.util import tf_stack

from odt_sim.export.lean_tracing import lean_tracing


def test_ops_share_a_stack_and_everything_is_as_before_afterwards() -> None:
    extract = tf_stack.extract_stack

    def fails() -> None:
        with lean_tracing(), tf.Graph().as_default():
            one, other = tf.constant(1.0), tf.constant(2.0)
            assert str(one.op.traceback) == str(other.op.traceback)
            assert not gc.isenabled()
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fails()
    assert gc.isenabled()
    assert tf_stack.extract_stack is extract


def test_collection_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with lean_tracing():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
