"""TensorFlow's interpreter with Flex ops, in a subprocess with another environment.

TensorFlow 2.19 is the last release whose interpreter runs Flex ops, and it cannot be installed with the TensorFlow that
exports. So each process of a run starts one `flex_process.py` in that environment, with any number of interpreters.
"""

import atexit
import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from odt_sim.data.store.columns import Array
from odt_sim.device.engines.flex_process import read_message, write_message
from odt_sim.errors import ConfigurationError, InvocationError, ModelError

PYTHON = "ODT_SIM_FLEX_PYTHON"
LAST = (2, 19)
"""The last TensorFlow whose interpreter runs Flex ops."""

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": "-1"}
ONE_THREAD = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class FlexEngine:
    """One interpreter in the subprocess."""

    def __init__(self, content: bytes, where: str, python: str | None = None) -> None:
        """Load a file; see `StartEngine`.

        Args:
            content: The file's bytes.
            where: Its name, for errors.
            python: The environment's Python; see `RuntimeChoice`.
        """
        self._where = where
        self._process = _process(find_python(python))
        try:
            answer, _ = self._process.ask({"do": "load"}, {"content": np.frombuffer(content, np.uint8)})
        except _FailedError as error:
            raise ModelError(f"{where}: TensorFlow cannot load it: {error}") from error
        self._number = answer["number"]

    def call(self, signature: str, **inputs: Any) -> dict[str, Array]:
        """Run one signature; see `Engine`."""
        arrays = {name: np.asarray(value) for name, value in inputs.items()}
        question = {"do": "call", "number": self._number, "signature": signature}
        try:
            _, outputs = self._process.ask(question, arrays)
        except _FailedError as error:
            kind = ModelError if error.by_inputs else InvocationError
            raise kind(f"{self._where}: signature {signature!r} failed in TensorFlow: {error}") from error
        return outputs

    def __del__(self) -> None:
        """Drop the interpreter with this object."""
        if hasattr(self, "_number"):
            self._process.dropped.append(self._number)


def find_python(python: str | None = None) -> str:
    """Return the Python of an environment with TensorFlow 2.19; see `RuntimeChoice`.

    Raises:
        ConfigurationError: There is none.
    """
    python = python or os.environ.get(PYTHON) or (sys.executable if _has_flex() else None)
    if python is None:
        raise ConfigurationError(
            "backend.runtime_python: expected the Python of an environment with TensorFlow 2.19, found null; create "
            "one: python3.11 -m venv flex && flex/bin/pip install 'tensorflow==2.19.*', then set this or "
            f"{PYTHON} to flex/bin/python"
        )
    if not os.access(python, os.X_OK) or Path(python).is_dir():
        raise ConfigurationError(
            f"backend.runtime_python: {python} is not a program; give the bin/python of an environment with TensorFlow 2.19"
        )
    return python


def _has_flex() -> bool:
    try:
        return tuple(map(int, version("tensorflow").split(".")[:2])) <= LAST
    except (PackageNotFoundError, ValueError):
        return False


class _FailedError(Exception):
    """The subprocess answered with an error, or ended."""

    def __init__(self, text: str, by_inputs: bool = False) -> None:
        super().__init__(text)
        self.by_inputs = by_inputs


class _Process:
    """The subprocess, which answers one question at a time."""

    def __init__(self, python: str) -> None:
        """Start the subprocess; TensorFlow takes some seconds to load."""
        self.dropped: list[int] = []
        self._lock = Lock()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  a pipe that is not read would fill up
        script = Path(__file__).with_name("flex_process.py")
        self._child = subprocess.Popen(
            [python, "-W", "ignore", "-P", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **QUIET, **ONE_THREAD},
        )
        try:
            hello, _ = self._exchange({"do": "hello"}, {})
        except _FailedError as error:
            raise ConfigurationError(f"backend.runtime_python: {python} has no usable TensorFlow: {error}") from error
        release = hello["tensorflow"]
        if tuple(map(int, release.split(".")[:2])) > LAST:
            self.end()
            raise ConfigurationError(
                f"backend.runtime_python: {python} has TensorFlow {release}, whose interpreter does not run Flex ops; "
                "expected 2.19"
            )

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    def ask(self, question: dict[str, Any], arrays: dict[str, Array]) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return the answer to a question.

        Raises:
            _FailedError: The answer is an error, or there is none.
        """
        with self._lock:
            dropped, self.dropped = self.dropped, []
            return self._exchange({**question, "drop": dropped}, arrays)

    def _exchange(self, question: dict[str, Any], arrays: dict[str, Array]) -> tuple[dict[str, Any], dict[str, Array]]:
        try:
            write_message(self._child.stdin, question, arrays)
            answer, outputs = read_message(self._child.stdout)
        except (OSError, EOFError, ValueError, json.JSONDecodeError) as error:
            words = self._last_words() or error
            self.end()
            raise _FailedError(f"its process ended ({words})") from error
        except BaseException:  # such as a time limit: the next question would get this answer
            self.end()
            raise
        if answer.get("error"):
            raise _FailedError(answer["error"], answer.get("by_inputs", False))
        return answer, outputs

    def end(self) -> None:
        """Kill the process."""
        with suppress(OSError):
            self._child.kill()
        self._child.wait()
        for file in (self._child.stdin, self._child.stdout, self._errors):
            with suppress(OSError):
                file.close()  # type: ignore[union-attr]

    def _last_words(self) -> str:
        if self._errors.closed:
            return ""
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(1)  # until it has written them
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""


_PROCESSES: dict[str, _Process] = {}
"""The process of each Python."""


def _process(python: str) -> _Process:
    """Return the running process of a Python; a new one if it has none, or if it died."""
    if python not in _PROCESSES or not _PROCESSES[python].alive:
        _PROCESSES[python] = _Process(python)
        atexit.register(_PROCESSES[python].end)
    return _PROCESSES[python]
