"""The process `odt-sim`: heeds signals before it imports the package, beside which it stands: that takes half a second."""

import os
import signal
from types import FrameType
from typing import NoReturn


def command() -> int:
    """Imports the command and runs it; returns its exit code.

    Outside `odt_sim.interrupt.interruptible` a signal ends the process at once. Those that it was started to ignore stay
    ignored.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    from odt_sim import cli

    return cli.command()


def _end(number: int, frame: FrameType | None) -> NoReturn:
    os.write(2, b"\ninterrupted\n")
    os._exit(128 + number)
