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
from odt_sim.cli.narrow_encodings import never_fail
from odt_sim.errors import OdtSimError

COMMANDS = (
    "run",
    "tune",
    "benchmark",
    "report",
    "export",
    "inspect",
    "doctor",
    "watch",
    "deploy",
    "phone",
    "deflex",
    "join",
    "new",
    "completion",
)
"""Each command is a function of its arguments, in a module of the same name, that returns the exit code."""

USAGE = """usage: odt-sim COMMAND ...

  run [-m] [OVERRIDE ...]     run an experiment; with -m a sweep:
                              odt-sim run -m strategy=local,fedavg seed=0,1,2
  tune strategy=A,B [budget=20] [OVERRIDE ...]
                              give each strategy the same number of trials, and
                              compare the best of each
  benchmark [task=A,B] [strategy=A,B] [OVERRIDE ...]
                              tune strategies on several tasks, and rank them
  report DIR ... [-o FILE] [--best] [--against LABEL] [--target VALUE]
         [--metric NAME]
                              compare runs on disk, as tables and a page
  export [-o FILE] [OVERRIDE ...]
                              write the configured model's .tflite, such as
                              odt-sim export model=mnist_cnn
  inspect FILE [--html OUT]   print a .tflite file's signatures, parameters and
                              ops, or write them as a page
  doctor FILE|--environment [--json]
                              check whether a .tflite file trains and what is
                              wrong with it, or what is missing here
  watch DIR [--host HOST] [--port PORT]
                              serve a live page of the runs in a folder
  deploy RUN --device ID|--user ID|--all|--global|--new [--format ...] [-o DIR]
         [data.path=...]
                              write a run's models for phones, to train and for
                              inference
  phone FILE|RUN [OVERRIDE ...]
                              let phones in this network check, measure and
                              personalize a trainable file
  deflex IN OUT [--batch-size ROWS]
                              rewrite a .tflite file with Flex ops so that any
                              LiteRT trains it
  join OUT bottleneck=FILE train_head=FILE optimizer=FILE [initialize=FILE]
                              join a model in several .tflite files without
                              signatures into one
  new strategy|model|experiment NAME
                              write a runnable template and its test
  completion SHELL            print the completion script for bash, zsh or fish

  odt-sim run --help lists the groups of the configuration,
  odt-sim run --cfg job prints all of it.
  odt-sim --version prints the version.
"""


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
        return int(getattr(import_module(f"odt_sim.cli.{name}"), name)(arguments[1:]))
    if name and name not in ("-h", "--help"):
        near = get_close_matches(name, COMMANDS, n=1)
        advice = f"did you mean odt-sim {near[0]}?" if near else f"expected one of {', '.join(COMMANDS)}"
        print(f"error: {name}: unknown command; {advice}", file=sys.stderr)
        return 2
    print(USAGE, end="", file=sys.stdout if name else sys.stderr)
    return 0 if name else 2
