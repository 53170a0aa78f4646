"""Work in threads ends when it is interrupted, even if it swallows the interrupt."""

import threading
import time

import pytest

from odt_sim.interruptible_threads import InterruptibleThreads


def test_result_or_error_of_work_is_handed_back():
    threads = InterruptibleThreads(2)
    results = [threads.begin(lambda: 5), threads.begin(lambda: {}["missing"])]
    assert results[0].result() == 5
    with pytest.raises(KeyError, match="missing"):
        results[1].result()
    threads.end()


def test_exit_in_a_thread_is_an_error_of_its_work_alone():
    threads = InterruptibleThreads(1)
    with pytest.raises(SystemExit):
        threads.begin(lambda: exit_with("no data")).result()
    assert threads.begin(lambda: 5).result() == 5
    threads.end()


def exit_with(message):
    raise SystemExit(message)


def test_end_lets_work_finish_that_takes_a_moment():
    began, done = threading.Event(), []

    def short():
        began.set()
        time.sleep(0.05)
        done.append("whole")

    threads = InterruptibleThreads(1)
    threads.begin(short)
    threads.begin(lambda: done.append("never"))
    began.wait()
    threads.end()
    assert done == ["whole"]


def test_end_interrupts_work_that_swallows_interrupts_and_drops_the_rest():
    began, done = threading.Event(), []

    def endless():
        began.set()
        while True:
            try:
                time.sleep(0.01)
            except BaseException:
                done.append("swallowed")
                if len(done) == 2:
                    raise

    threads = InterruptibleThreads(1)
    threads.begin(endless)
    threads.begin(lambda: done.append("never"))
    began.wait()
    threads.end()
    assert done == ["swallowed", "swallowed"]
    assert not [thread for thread in threading.enumerate() if thread.name == "devices"]


def test_end_interrupts_all_of_many_threads():
    """They are given time together: one after the other, as many would take longer than `end` waits."""
    began, goes_on = threading.Barrier(13), threading.Event()

    def endless():
        began.wait(60)
        while True:
            goes_on.wait(0.01)

    threads = InterruptibleThreads(12)
    for _ in range(12):
        threads.begin(endless)
    began.wait(60)
    threads.end()
    assert not [thread for thread in threading.enumerate() if thread.name == "devices"]


def test_threads_without_work_end():
    InterruptibleThreads(3).end()
    assert not [thread for thread in threading.enumerate() if thread.name == "devices"]
