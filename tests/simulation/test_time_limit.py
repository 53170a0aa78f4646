"""The time limit applies even if a strategy swallows the interrupt."""

import signal
import time

import pytest

from odt_sim.simulation.run.time_limit import OutOfTime, timed


def swallows() -> None:
    try:
        time.sleep(300)
    except BaseException:
        return


def test_swallowed_timeout_interrupts_again():
    def work():
        swallows()
        time.sleep(300)

    with pytest.raises(OutOfTime):
        timed(work, 0.05, ends_process=False)
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_swallowed_timeout_still_fails():
    with pytest.raises(OutOfTime):
        timed(swallows, 0.05, ends_process=False)


def test_work_within_the_limit_succeeds():
    assert timed(lambda: 5, 60, ends_process=False) == 5
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
