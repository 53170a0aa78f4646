"""The time of a model's calls and the memory of its interpreter, measured once per file and machine.

Measured times vary, so a run stores its calibration and a resumed run reads it: everything that depends on it is the
same in both.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim._support.files import cache_folder, write_file
from odt_sim._support.system import environment
from odt_sim.errors import ConfigurationError, ModelError
from odt_sim.fleet.classes import Floats
from odt_sim.model.trainable import TrainableModel
from odt_sim.persistence.environment import processor

FORMAT_VERSION = 1
CALIBRATION = "calibration.json"
"""The name of the file in a run's folder."""


@dataclass(frozen=True)
class CallTime:
    """The time of a call of one signature.

    Attributes:
        per_call: Seconds of each call, independent of its rows; may be negative together with seconds per row.
        per_row: Seconds of each row; 0 for a signature with a fixed number of rows.
        rows: The rows of a full batch.
    """

    per_call: float
    per_row: float
    rows: int


@dataclass(frozen=True)
class Calibration:
    """The time and memory of a file's calls on one machine.

    Attributes:
        fingerprint: SHA-256 of the file.
        machine: The measured processor and versions.
        calls: The time of a call, by signature.
        memory_bytes: The peak memory of an interpreter that has called all signatures, including the file.
    """

    fingerprint: str
    machine: str
    calls: Mapping[str, CallTime]
    memory_bytes: int

    def seconds(self, signature: str, calls: NDArray[Any], rows: NDArray[Any] | None = None) -> Floats:
        """Return the seconds of calls of a signature on the measured machine.

        Args:
            signature: The signature's name.
            calls: `[devices]`, the number of calls.
            rows: `[devices]`, the rows of all calls; None for full batches.

        Raises:
            ConfigurationError: The signature was not measured.
        """
        if signature not in self.calls:
            measured = ", ".join(sorted(self.calls))
            raise ConfigurationError(f"calibration: expected one of the signatures {measured}, found {signature!r}")
        time = self.calls[signature]
        return np.maximum(calls * time.per_call + (calls * time.rows if rows is None else rows) * time.per_row, 0.0)

    @property
    def digest(self) -> str:
        """A short digest of the calibration, for comparing runs."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:12]

    def to_json(self) -> str:
        """Return the calibration as JSON."""
        return json.dumps({"format_version": FORMAT_VERSION, **asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, where: str) -> "Calibration":
        """Read a calibration from JSON.

        Args:
            text: The JSON.
            where: The file's name, for errors.

        Raises:
            ConfigurationError: The text is no calibration of this version.
        """
        try:
            values = json.loads(text)
            if not isinstance(values, dict):
                raise ValueError("not a JSON object")
            if (version := values.pop("format_version")) != FORMAT_VERSION:
                raise ValueError(f"format version {version!r}")
            calls = {name: CallTime(**time) for name, time in values.pop("calls").items()}
            calibration = cls(calls=calls, **values)
            if not all(0 <= time.per_call + time.rows * time.per_row < float("inf") for time in calls.values()):
                raise ValueError("a time is negative or infinite")
            return calibration
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"no key {error}" if isinstance(error, KeyError) else str(error)
            raise ConfigurationError(
                f"{where}: not a calibration of version {FORMAT_VERSION} ({reason}); remove it, or give the "
                f"{CALIBRATION} of another run"
            ) from error

    @classmethod
    def read(cls, path: Path, model: TrainableModel) -> "Calibration":
        """Read a calibration of a model from a file.

        Raises:
            ConfigurationError: The file cannot be read, is no calibration, or belongs to another model.
        """
        try:
            calibration = cls.from_json(path.read_bytes(), str(path))
        except OSError as error:
            raise ConfigurationError(
                f"{path}: cannot read the calibration ({error.strerror}); give the calibration.json of a run"
            ) from error
        if calibration.fingerprint != model.fingerprint:
            raise ConfigurationError(
                f"{path}: measured a file with fingerprint {calibration.fingerprint[:12]}, expected "
                f"{model.fingerprint[:12]} of {model.where}; leave fleet.profiles.calibration out to measure this file"
            )
        return calibration


def calibrated(model: TrainableModel, folder: Path | None = None, given: Path | None = None) -> Calibration:
    """Return a model's calibration: from the given file, else from the run's folder, else from the cache, else measured.

    Args:
        model: The model.
        folder: The run's folder, which may contain the calibration of an interrupted run.
        given: The file of a calibration to use instead of a measurement.

    Raises:
        ConfigurationError: A file is not a calibration of this model.
        ModelError: LiteRT cannot run the model.
        FileError: The cache cannot be written.
    """
    if given is not None:
        return Calibration.read(given, model)
    if folder is not None and (folder / CALIBRATION).exists():
        return Calibration.read(folder / CALIBRATION, model)
    digest = hashlib.sha256(this_machine().encode()).hexdigest()[:16]
    cached = cache_folder("calibrations") / f"{model.fingerprint[:32]}-{digest}.json"
    if cached.exists():
        return Calibration.read(cached, model)
    calibration = measured(model)
    write_file(cached, calibration.to_json().encode())
    return calibration


def measured(model: TrainableModel) -> Calibration:
    """Measure a model on this machine in a separate process with one thread.

    Raises:
        ModelError: LiteRT cannot run the model.
    """
    process = subprocess.run(
        [sys.executable, "-m", "odt_sim.fleet.calibration_process", model.where],
        input=model.content,
        capture_output=True,
        env=environment({"OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}),
        check=False,
    )
    if process.returncode:
        lines = process.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
        raise ModelError(f"{model.where}: cannot be measured ({lines[-1]}); leave fleet.profiles out")
    return Calibration.from_json(process.stdout, f"measurement of {model.where}")


@cache
def this_machine() -> str:
    """Return the processor of this machine, and the versions that determine how fast a file runs on it."""
    return f"{processor()}, Python {python_version()}, LiteRT {version('ai-edge-litert')}"
