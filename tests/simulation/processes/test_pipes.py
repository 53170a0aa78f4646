"""Messages between a process and its forks."""

import multiprocessing
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odt_sim.simulation.executors.pipes import SMALL, Packed, receive, send


@given(st.lists(st.tuples(st.sampled_from(["<f4", "<f8", "|b1", "<i4"]), st.lists(st.integers(0, 3), max_size=3))))
def test_arrays_arrive_as_they_were(kinds):
    here, there = multiprocessing.Pipe()
    arrays = [np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype) for dtype, shape in kinds]
    send(here, {"arrays": arrays, "text": "a"})
    received = receive(there)
    assert received["text"] == "a"
    for array, expected in zip(received["arrays"], arrays, strict=True):
        assert (array.dtype, array.shape, array.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())


@pytest.mark.parametrize("size", [SMALL // 8, SMALL // 8 + 1, 1 << 20])
def test_arrays_of_any_size_arrive_without_a_reader(size):
    here, there = multiprocessing.Pipe()
    sent = np.random.default_rng(0).normal(size=size)
    send(here, [sent, sent[:3].copy()])
    received = receive(there)
    np.testing.assert_array_equal(received[0], sent)
    received[0][:] = 0  # a private copy
    np.testing.assert_array_equal(received[1], sent[:3])


def test_message_to_several_receivers_is_written_once_and_its_memory_is_freed():
    pipes = [multiprocessing.Pipe() for _ in range(3)]
    before = len(os.listdir("/proc/self/fd"))
    with Packed(np.ones(1 << 20)) as packed:
        assert len(os.listdir("/proc/self/fd")) == before + 1
        for here, _ in pipes:
            packed.send(here)
    values = [receive(there) for _, there in pipes]
    assert [value.sum() for value in values] == [1 << 20] * 3
    values[0][0] = 7
    assert values[1][0] == 1
    assert len(os.listdir("/proc/self/fd")) <= before + 3  # a mapping keeps a duplicate


def test_end_of_the_sender_is_noticed():
    here, there = multiprocessing.Pipe()
    here.close()
    with pytest.raises(EOFError):
        receive(there)
