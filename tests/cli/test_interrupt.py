"""Signals end what they meet, and are not lost."""

import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest

from odt_sim.cli import interrupt
from odt_sim.cli.interrupt import Interrupted, interruptible

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}

NATIVE = """
import hashlib, signal
from odt_sim.cli import interrupt
signal.signal(signal.SIGINT, signal.default_int_handler)
with interrupt.interruptible():
    interrupt.tell("go on")
    print("begun", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 1 << 30)  # C code of minutes, which looks at no signal
"""

TIDY = """
import time
from odt_sim.cli import interrupt
try:
    with interrupt.interruptible():
        try:
            print("begun", flush=True)
            time.sleep(60)
        finally:
            time.sleep(0.5)
            print("tidy", flush=True)
except interrupt.Interrupted as stop:
    raise SystemExit(stop.exit_code)
"""


@pytest.fixture(autouse=True)
def handlers_as_before():
    """The handlers of this process, which the block gives back; they heed signals, also in the background of a shell."""
    kept = {number: signal.signal(number, signal.default_int_handler) for number in CODES}
    before = [*map(signal.getsignal, CODES), signal.set_wakeup_fd(-1)]
    yield
    assert [*map(signal.getsignal, CODES), signal.set_wakeup_fd(-1)] == before
    interrupt.check()  # nothing is remembered
    for number, handler in kept.items():
        signal.signal(number, handler)


@interruptible()
def run(*steps):
    for step in steps:
        step()


def interrupted(*steps):
    """Returns what ends a block of steps."""
    with pytest.raises(Interrupted) as caught:
        run(*steps)
    return caught.value


def raises_the_signal(number):
    return lambda: signal.raise_signal(number)


def swallows_the_signal(number):
    def step():
        with suppress(KeyboardInterrupt):
            signal.raise_signal(number)

    return step


def fails():
    raise ConnectionError("the worker has gone")


@pytest.mark.parametrize("number", CODES)
def test_a_signal_ends_the_block_with_what_there_is_to_tell(number):
    found = interrupted(
        lambda: interrupt.tell("nothing is there"),
        lambda: interrupt.tell("go on with it"),
        raises_the_signal(number),
        lambda: interrupt.tell("too late"),
    )
    assert (str(found), found.exit_code) == ("interrupted; go on with it", CODES[number])


@pytest.mark.parametrize("number", CODES)
def test_a_signal_that_was_swallowed_is_found(number):
    done = []
    found = interrupted(interrupt.check, swallows_the_signal(number), interrupt.check, lambda: done.append("too late"))
    assert (str(found), found.exit_code, done) == ("interrupted", CODES[number], [])


def test_a_signal_that_was_swallowed_is_found_at_the_end():
    assert interrupted(swallows_the_signal(signal.SIGINT)).exit_code == 130


def test_what_fails_after_a_signal_is_no_error():
    assert interrupted(swallows_the_signal(signal.SIGINT), fails).exit_code == 130


def test_errors_without_a_signal_stay():
    with pytest.raises(ConnectionError):
        run(fails)


def test_a_library_that_puts_its_own_handler_in_place_of_ours_hides_no_signal():
    def as_ray_does():
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))

    assert interrupted(as_ray_does, raises_the_signal(signal.SIGTERM)).exit_code == 143


@pytest.mark.parametrize("number", CODES)
def test_a_signal_that_is_ignored_stays_ignored(number):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        run(raises_the_signal(number), interrupt.check)
    finally:
        signal.signal(number, before)


def test_in_another_thread_there_is_nothing_to_handle():
    done = []
    thread = threading.Thread(target=run, args=[lambda: done.append(True)])
    thread.start()
    thread.join()
    assert done == [True]


@pytest.mark.parametrize(("number", "times"), [(signal.SIGINT, 1), (signal.SIGTERM, 2)])
def test_native_code_ends_within_five_seconds_and_at_once_when_told_again(number, times):
    child = subprocess.Popen([sys.executable, "-c", NATIVE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "begun\n"
    time.sleep(0.5)
    started = time.monotonic()
    for _ in range(times):
        child.send_signal(number)
        time.sleep(0.2 + interrupt.TOGETHER)
    _, err = child.communicate(timeout=60)
    took = time.monotonic() - started
    assert child.returncode == CODES[number]
    assert err.splitlines()[-1] == "interrupted; ended at once; go on"
    assert (took >= interrupt.SECONDS) == (times == 1)


def test_signals_at_once_are_one():
    """As `timeout` sends them: to its command, and then to the process group, in which that is."""
    child = subprocess.Popen([sys.executable, "-c", TIDY], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "begun\n"
    child.send_signal(signal.SIGTERM)
    time.sleep(interrupt.TOGETHER / 10)  # the first is raised
    child.send_signal(signal.SIGTERM)
    out, _ = child.communicate(timeout=60)
    assert (child.returncode, out) == (143, "tidy\n")


@pytest.mark.parametrize("number", CODES)
def test_what_interrupted_a_block_is_known_until_the_next_begins(number):
    """Until the process ends: what watches Ray must not take its end, at the same signal, for a death of its own."""
    interrupted(raises_the_signal(number))
    assert interrupt.received() == number
    run(lambda: pytest.fail("a signal of the past") if interrupt.received() else None)
    assert interrupt.received() is None
