"""Verification of a `.tflite` file in a subprocess before LiteRT loads it in this process.

LiteRT is native code that trusts a file's offsets, shapes and indices. A damaged or hostile file can crash it, hang it or
exhaust the memory. `odt_sim.device.verification_process` is the subprocess.
"""

import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from odt_sim._support.files import cache_folder, write_file
from odt_sim._support.system import environment
from odt_sim.errors import FileError, InvocationError, ModelError, transient

SECONDS = 60.0
"""The CPU time of a verification, in seconds; a file of more than 60 MB gets one second for each MB.

It is generous, because a slow machine must not refuse a model that a fast one accepts.
"""

PATIENCE = 6
"""The wall-clock limit as a multiple of the CPU time, because the machine may be busy."""

ACCEPTED, REFUSED, FAILED = 0, 3, 4
"""The subprocess's exit codes; the last line of its output is the memory in bytes, or the reason. `FAILED` is a call."""


@dataclass(frozen=True)
class Ending:
    """The end of a verification.

    Attributes:
        code: The exit code; minus the number of the signal, SIGXCPU for too much CPU time; None for the wall-clock limit.
        output: The standard output.
        errors: The standard error.
    """

    code: int | None
    output: str = ""
    errors: str = ""


def verify(content: bytes, fingerprint: str, where: str) -> None:
    """Check once per machine that LiteRT can load and run a file.

    Args:
        content: The file's bytes.
        fingerprint: Their SHA-256, in hexadecimal.
        where: The file's name, for errors.

    Raises:
        InvocationError: LiteRT fails while it runs a signature.
        ModelError: LiteRT fails otherwise, crashes, or takes too long.
    """
    if not _is_verified(fingerprint):
        _accepted(content, where)
        remember(fingerprint)


def memory_needed(content: bytes, where: str) -> int:
    """Return the memory in bytes of a process that runs a model, Python and LiteRT included.

    Args:
        content: The file's bytes.
        where: The file's name, for errors.

    Raises:
        ModelError: LiteRT cannot load or run the file.
    """
    return int(_accepted(content, where).output.split()[-1])


def remember(fingerprint: str) -> None:
    """Record that a file is verified; without a writable cache, for this process only."""
    _verified.add(fingerprint)
    with suppress(FileError):
        write_file(_mark(fingerprint), b"")


def run(content: bytes, where: str, seconds: float) -> Ending:
    """Run the subprocess with a limit of CPU time in seconds."""
    return run_module("odt_sim.device.verification_process", [where, str(seconds)], content, PATIENCE * seconds)


def run_module(module: str, arguments: Sequence[str], content: bytes, timeout: float) -> Ending:
    """Run a module that takes a file from standard input, in a subprocess with a limit of wall-clock time in seconds."""
    variables = environment({"OPENBLAS_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"})
    command = [sys.executable, "-P", "-m", module, *arguments]  # -P: ignore modules in the working folder
    try:
        child = subprocess.run(command, input=content, capture_output=True, env=variables, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        return Ending(None, (error.output or b"").decode(errors="replace"))
    return Ending(child.returncode, *(text.decode(errors="replace") for text in (child.stdout, child.stderr)))


def _accepted(content: bytes, where: str) -> Ending:
    seconds = max(SECONDS, len(content) / 1e6)
    ending = run(content, where, seconds)
    if ending.code != ACCEPTED:
        kind = InvocationError if ending.code == FAILED else ModelError
        error = kind(_refusal(ending, where, seconds))
        raise transient(error) if ending.code in (None, -signal.SIGKILL) else error
    return ending


def _refusal(ending: Ending, where: str, seconds: float) -> str:
    if ending.code in (REFUSED, FAILED):
        return ending.output.strip().splitlines()[-1]
    if ending.code is None:
        return (
            f"{where}: LiteRT did not finish within {PATIENCE * seconds / 60:.0f} minutes; check what else is "
            "running on this machine"
        )
    if ending.code == -signal.SIGXCPU:
        return (
            f"{where}: LiteRT needed more than {seconds:.0f} s of CPU time to load the file and run it once; "
            "it is damaged, or too large for devices"
        )
    if ending.code == -signal.SIGKILL or "std::bad_alloc" in ending.errors:
        return (
            f"{where}: LiteRT was killed while it loaded or ran the file, probably because memory ran out; free "
            "memory, or export it with a smaller batch_size"
        )
    if ending.code < 0:
        name = signal.Signals(-ending.code).name
        return f"{where}: LiteRT crashes when it loads or runs it ({name}); it is damaged, copy or export it again"
    lines = ending.errors.strip().splitlines() or [f"exit code {ending.code}"]
    return f"{where}: the verification process failed ({lines[-1]}); check that Python can start subprocesses"


_verified = set[str]()
"""The fingerprints of files that this process verified."""


def _is_verified(fingerprint: str) -> bool:
    with suppress(FileError, OSError):  # no readable cache
        return fingerprint in _verified or _mark(fingerprint).exists()
    return False


def _mark(fingerprint: str) -> Path:
    """Return the empty file that marks a content as verified with this version of LiteRT."""
    return cache_folder("verified") / f"{fingerprint}.litert-{_litert_version()}"


@cache
def _litert_version() -> str:
    return version("ai-edge-litert")
