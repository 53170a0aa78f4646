"""The command `odt-sim`."""

import os
import signal
import sys
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from types import FrameType

import odt_sim
from odt_sim._support.text import one_line
from odt_sim.cli.command_table import COMMANDS, usage
from odt_sim.cli.messages import never_fail
from odt_sim.errors import OdtSimError


def command() -> int:
    """Run the process `odt-sim` and return its exit code: that of `main`, or 143 after SIGTERM."""
    received: list[int] = []  # Ray replaces the handler's KeyboardInterrupt with another

    def terminate(number: int, frame: FrameType | None) -> None:
        received.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, terminate)
    never_fail()
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 128 + signal.SIGTERM if received else code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Returns:
        0 for success; 1 for an error, printed in one line, or a failed job of a sweep; 2 for incorrect usage; 130 after
        Ctrl-C.
    """
    try:
        return _dispatch(list(sys.argv[1:] if arguments is None else arguments))
    except OdtSimError as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        print("; ".join(["interrupted", *getattr(stop, "__notes__", ())]), file=sys.stderr)
        return 128 + signal.SIGINT


def _dispatch(arguments: Sequence[str]) -> int:
    name = arguments[0] if arguments else ""
    if name == "--version":
        print(odt_sim.__version__)
        return 0
    if name in COMMANDS:
        return int(getattr(import_module(f"odt_sim.cli.commands.{name}"), name)(arguments[1:]))
    if name and name not in ("-h", "--help"):
        near = get_close_matches(name, COMMANDS, n=1)
        advice = f"did you mean odt-sim {near[0]}?" if near else f"expected one of {', '.join(COMMANDS)}"
        print(f"error: {name}: unknown command; {advice}", file=sys.stderr)
        return 2
    print(usage(), end="", file=sys.stdout if name else sys.stderr)
    return 0 if name else 2
