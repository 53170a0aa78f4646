"""Objects in shared memory, and messages in a queue, between a process and its fork."""

import multiprocessing
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odt_sim.simulation.processes.mailbox import ALIGNED, SMALL, Mailbox
from odt_sim.simulation.processes.queue import ROOM, Queue

SIZES = st.one_of(st.integers(0, 9), st.integers(SMALL - 9, SMALL + 9), st.just(300_001))


@given(st.lists(st.lists(SIZES, max_size=4), min_size=1, max_size=4), st.integers(0, 5000))
def test_object_comes_back_whatever_was_written_before(objects, text):
    mailbox = Mailbox()
    for sizes in objects:
        given = {"text": "x" * text, "arrays": [np.arange(size, dtype=np.uint8) for size in sizes]}
        mailbox.write(3, given)
        for found, _ in (mailbox.read(3), mailbox.view(3)):
            assert found["text"] == given["text"]
            for array, expected in zip(found["arrays"], given["arrays"], strict=True):
                np.testing.assert_array_equal(array, expected, strict=True)
    mailbox.close()


@given(st.lists(SIZES, max_size=4), st.lists(SIZES, max_size=4))
def test_further_arrays_come_as_bytes_beside_the_object(pickled, further):
    mailbox = Mailbox()
    for _ in range(2):
        mailbox.write(0, [np.arange(size, dtype=np.uint8) for size in pickled], [np.arange(size) for size in further])
        for value, buffers in (mailbox.read(0), mailbox.view(0)):
            assert [len(array) for array in value] == pickled
            found = [np.ndarray(size, np.int64, buffer) for size, buffer in zip(further, buffers, strict=True)]
            for array, size in zip(found, further, strict=True):
                np.testing.assert_array_equal(array, np.arange(size))
    mailbox.close()


def test_copies_stay_and_views_change():
    mailbox = Mailbox()
    mailbox.write(0, np.zeros(SMALL))
    mailbox.write(1, np.full(SMALL, 7.0))
    (copy, _), (view, _) = mailbox.read(0), mailbox.view(0)
    mailbox.write(0, np.ones(SMALL))
    assert (copy[0], view[0], mailbox.read(1)[0][0]) == (0.0, 1.0, 7.0)
    assert copy.flags.writeable
    assert not view.flags.writeable
    assert view.ctypes.data % ALIGNED == 0


def test_long_texts_and_many_arrays_come_back():
    mailbox, given = Mailbox(), ["x" * (3 * SMALL), *(np.full(SMALL, i % 256, np.uint8) for i in range(700))]
    mailbox.write(0, given)
    found, _ = mailbox.read(0)
    assert found[0] == given[0]
    assert [int(array[-1]) for array in found[1:]] == [i % 256 for i in range(700)]


def in_fork(work, *arguments):
    process = multiprocessing.get_context("fork").Process(target=work, args=arguments)
    process.start()
    return process


def test_fork_reads_and_writes():
    mailbox, queue = Mailbox(), Queue(2)
    mailbox.write(0, np.arange(SMALL))

    def doubles():
        mailbox.write(1, 2 * mailbox.view(0)[0])
        queue.put([(4, -1)])

    fork = in_fork(doubles)
    fork.join()
    assert queue.get() == (4, -1)
    assert queue.get() is None
    np.testing.assert_array_equal(mailbox.read(1)[0], 2 * np.arange(SMALL))


def test_each_message_goes_to_one_reader_in_order():
    queue = Queue(3)
    queue.put((i, i * i, -i) for i in range(ROOM))
    assert [queue.get() for _ in range(ROOM)] == [(i, i * i, -i) for i in range(ROOM)]
    assert queue.get() is None


def test_only_reader_gets_all_messages_at_once():
    queue = Queue(2)
    queue.put((i, -i) for i in range(ROOM))
    assert queue.get_all() == [(i, -i) for i in range(ROOM)]
    assert queue.get_all() == []
    os.close(queue.writer)
    with pytest.raises(EOFError):
        queue.get_all()


def test_queue_without_writers_has_ended():
    queue = Queue(1)
    queue.put([(5,)])
    os.close(queue.writer)
    assert queue.get() == (5,)
    with pytest.raises(EOFError):
        queue.get()
