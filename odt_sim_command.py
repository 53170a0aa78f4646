"""The process `odt-sim`: heeds signals before it imports the package, beside which it stands: that takes half a second."""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn


def command() -> int:
    """Imports the command and runs it; returns its exit code.

    Outside `odt_sim.interrupt.interruptible` a signal ends the process at once. Those that it was started to ignore stay
    ignored. A standard stream that was closed leads nowhere.
    """
    _open_streams()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    from odt_sim import cli

    return cli.command()


def _open_streams() -> None:
    """Opens what is closed of standard input, output and error: the next file, or pipe, would have its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # in the order of their numbers
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode)  # noqa: SIM115
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)  # holds it open, whatever takes its place


def _end(number: int, frame: FrameType | None) -> NoReturn:
    try:
        os.write(2, b"\ninterrupted\n")
    finally:
        os._exit(128 + number)
