"""Verification of a `.tflite` file in a subprocess before LiteRT loads it in this process.

LiteRT is native code that trusts a file's offsets, shapes and indices. A damaged or hostile file can crash it, hang it or
exhaust the memory. `odt_sim.device.verification_process` is the subprocess.
"""

import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from odt_sim.errors import FileError, ModelError
from odt_sim.files import cache_folder, write_file
from odt_sim.subprocesses import environment

SECONDS = 60.0
"""The processor's time that the trial of a file may take; of a file of more than 60 MB a second for each.

It is for what never ends: a model that a slow machine runs in this time is none that a fast one refuses.
"""

PATIENCE = 6
"""How many times as long it may last by the clock, for what sleeps: the machine may be busy."""

ACCEPTED, REFUSED = 0, 3
"""How the trial exits; the last line of its output says how much memory it took, in bytes, or why it refuses."""


@dataclass(frozen=True)
class Ending:
    """How a trial ended.

    Attributes:
        code: Its exit code, or minus the number of the signal that ended it, which is SIGXCPU where it took too long; None
            where it did by the clock.
        output: What it wrote to standard output.
        errors: What it, or LiteRT, wrote to standard error.
    """

    code: int | None
    output: str = ""
    errors: str = ""


def verify(content: bytes, fingerprint: str, where: str) -> None:
    """Checks that LiteRT can load a file and run what devices call; once for each content, on each machine.

    Args:
        content: The file's bytes.
        fingerprint: Their SHA-256, in hexadecimal.
        where: The file's name, for the error.

    Raises:
        ModelError: It cannot, or crashes, or takes too long.
    """
    if not _known(fingerprint):
        _accepted(content, where)
        remember(fingerprint)


def memory_needed(content: bytes, where: str) -> int:
    """Returns the bytes of memory of a process that does with a file what devices do, Python and LiteRT among them.

    Args:
        content: The file's bytes.
        where: The file's name, for the error.

    Raises:
        ModelError: LiteRT cannot load or run it.
    """
    return int(_accepted(content, where).output.split()[-1])


def _accepted(content: bytes, where: str) -> Ending:
    seconds = max(SECONDS, len(content) / 1e6)
    ending = tried(content, where, seconds)
    if ending.code != ACCEPTED:
        raise ModelError(_refusal(ending, where, seconds))
    return ending


def remember(fingerprint: str) -> None:
    """Keeps that a file was tried and is fine; where that cannot be written, the next process tries it again."""
    _fine.add(fingerprint)
    with suppress(FileError):
        write_file(_mark(fingerprint), b"")


def _known(fingerprint: str) -> bool:
    try:
        return fingerprint in _fine or _mark(fingerprint).exists()
    except (FileError, OSError):  # no cache that could be read
        return False


_fine = set[str]()
"""The fingerprints of what this process has tried."""


def tried(content: bytes, where: str, seconds: float) -> Ending:
    """Returns how the trial of a file ended; it is killed where it takes more than some seconds of the processor's time."""
    quiet = environment({"OPENBLAS_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"})
    # -P: nothing of the working folder takes the place of a module.
    command = [sys.executable, "-P", "-m", "odt_sim.device.verification_process", where, str(seconds)]
    try:
        child = subprocess.run(
            command,
            input=content,
            capture_output=True,
            env=quiet,
            timeout=PATIENCE * seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Ending(None)
    return Ending(child.returncode, *(text.decode(errors="replace") for text in (child.stdout, child.stderr)))


def _refusal(ending: Ending, where: str, seconds: float) -> str:
    if ending.code == REFUSED:
        return ending.output.strip().splitlines()[-1]
    if ending.code is None:
        return f"{where}: LiteRT did not end within {PATIENCE * seconds / 60:.0f} minutes; see what keeps this machine busy"
    if ending.code == -signal.SIGXCPU:
        return (
            f"{where}: LiteRT took more than {seconds:.0f} s of the processor's time to load it and run it once; "
            "it is damaged, or too large for devices"
        )
    if ending.code == -signal.SIGKILL or "std::bad_alloc" in ending.errors:
        return (
            f"{where}: LiteRT was ended when it loaded or ran it, as for lack of memory; "
            "make memory free, or export it with a smaller batch_size"
        )
    if ending.code < 0:
        name = signal.Signals(-ending.code).name
        return f"{where}: LiteRT crashes when it loads or runs it ({name}); it is damaged, copy or export it again"
    lines = ending.errors.strip().splitlines() or [f"exit code {ending.code}"]
    return f"{where}: cannot be tried in a process of its own ({lines[-1]}); see that Python can be started here"


def _mark(fingerprint: str) -> Path:
    """Returns the empty file that is there once LiteRT, of this version, got on with a content."""
    return cache_folder("verified") / f"{fingerprint}.litert-{_litert()}"


@cache
def _litert() -> str:
    return version("ai-edge-litert")
