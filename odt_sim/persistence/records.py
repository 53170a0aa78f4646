"""What a run leaves on disk: `rounds.jsonl`, `devices.jsonl`, `summary.json`, or `failure.json`.

Everything is strict JSON: a number that is not finite is written as null. `rounds.jsonl` grows by one line a round, so
its last line may be torn where a run was killed; the other files are replaced as a whole or not at all.
"""

import json
import math
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from odt_sim.errors import CheckpointError
from odt_sim.persistence.files import sync_names, unwritable, write_file

Row = Mapping[str, Any]

RECORDS = ROUNDS, DEVICES, SUMMARY, FAILURE = "rounds.jsonl", "devices.jsonl", "summary.json", "failure.json"

DEVICE_KEYS = ("device", "seen", "train_examples", "examples")
"""What every line of `devices.jsonl` has."""

SUMMARY_KEYS = (
    *("strategy", "seed", "task", "rounds", "devices", "cohort", "unseen", "train_examples", "examples"),
    *("metrics", "metrics_unseen", "fraction_hurt_global", "fraction_hurt_local"),
    *("excluded", "bytes_down", "bytes_up", "seconds"),
)
"""What every `summary.json` has; `odt_sim.persistence.summary.summarize` says what each is."""


@dataclass(frozen=True)
class RunFolder:
    """Writes and reads the records of one run.

    Attributes:
        path: The run's folder; it exists before the first record is written.
    """

    path: Path

    def append_round(self, row: Row) -> None:
        """Adds one line to `rounds.jsonl`, which lasts; what was there stays whole even where the disk is full.

        A run that goes on from an earlier one calls `truncate_rounds` first: that also drops a torn last line.

        Args:
            row: `round` (from 1), and the other columns that `docs/evaluation.md` defines; those of
                `odt_sim.metrics.fleet.evaluation_columns` when evaluation is due.

        Raises:
            FileError: The file cannot be written.
        """
        path = self.path / ROUNDS
        try:
            with path.open("ab", buffering=0) as file:
                size = file.tell()
                line = _line(row)
                try:
                    if file.write(line) != len(line):
                        raise OSError(None, "only a part of a line was written")
                    os.fdatasync(file.fileno())
                    if not size:
                        sync_names(self.path)
                except OSError:
                    file.truncate(size)
                    raise
        except OSError as error:
            raise unwritable(path, error) from error

    def truncate_rounds(self, rounds: int) -> None:
        """Keeps only the lines of the rounds 1 to `rounds`, the last that was committed.

        Raises:
            CheckpointError: The file is damaged before its last line.
            FileError: The file cannot be written.
        """
        if (self.path / ROUNDS).exists():
            write_file(self.path / ROUNDS, _lines(row for row in self.rounds() if row["round"] <= rounds))
            sync_names(self.path)

    def rounds(self) -> list[Row]:
        """Returns the rounds' records in order; a torn last line is dropped; empty where there is no file.

        Raises:
            CheckpointError: The file is damaged before its last line.
        """
        path = self.path / ROUNDS
        return _read_lines(path, ("round",), torn_end=True) if path.exists() else []

    def write_devices(self, rows: Sequence[Row]) -> None:
        """Writes `devices.jsonl`, a line a device.

        Args:
            rows: What every line has, `DEVICE_KEYS`; the figures that `docs/evaluation.md` defines, of which `m`, `global_m`
                and `local_m` are None where they are not known; and whatever scalars the strategy reports of a device.

        Raises:
            FileError: The file cannot be written.
        """
        write_file(self.path / DEVICES, _lines(rows))

    def devices(self) -> list[Row]:
        """Returns the devices' records in order; empty where there is no file.

        Raises:
            CheckpointError: The file is damaged.
        """
        path = self.path / DEVICES
        return _read_lines(path, DEVICE_KEYS, torn_end=False) if path.exists() else []

    def write_summary(self, summary: Row) -> None:
        """Writes `summary.json`, as `odt_sim.persistence.summary.summarize` makes it, and drops an earlier failure.

        Raises:
            FileError: The file cannot be written.
        """
        write_file(self.path / SUMMARY, document(summary))
        with suppress(FileNotFoundError):
            (self.path / FAILURE).unlink()

    def summary(self) -> Row | None:
        """Returns the summary, or None where the run is not complete.

        Raises:
            CheckpointError: The file is damaged.
        """
        return _read_document(self.path / SUMMARY, SUMMARY_KEYS)

    def reopen(self) -> None:
        """Removes the end of a run that goes on: the summary first, since it makes devices' records those of its rounds.

        Raises:
            FileError: A file cannot be removed.
        """
        for name in (SUMMARY, DEVICES):
            try:
                (self.path / name).unlink(missing_ok=True)
            except OSError as error:
                raise unwritable(self.path / name, error) from error

    def write_failure(self, error: str, overrides: Sequence[str]) -> None:
        """Writes `failure.json`: the run ended early.

        Args:
            error: Why, in one line.
            overrides: The Hydra overrides of the run, so that the comparison can name it.

        Raises:
            FileError: The file cannot be written.
        """
        write_file(self.path / FAILURE, document({"error": " ".join(error.split()), "overrides": list(overrides)}))

    def failure(self) -> Row | None:
        """Returns `error` and `overrides` of a run that ended early, or None.

        Raises:
            CheckpointError: The file is damaged.
        """
        return _read_document(self.path / FAILURE, ("error",))


def is_run_folder(path: Path) -> bool:
    """Whether a folder holds a run's records."""
    return any((path / name).is_file() for name in (SUMMARY, FAILURE, ROUNDS))


def _plain(value: Any) -> Any:
    """Returns what strict JSON can hold."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _line(row: Row) -> bytes:
    return json.dumps(_plain(row), allow_nan=False).encode() + b"\n"


def checksum(row: Row, before: int = 0) -> int:
    """Returns the CRC-32 of a round's record but for its time, and of those before it, of which it is `before`."""
    return zlib.crc32(_line({name: value for name, value in row.items() if name != "seconds"}), before)


def _lines(rows: Iterable[Row]) -> bytes:
    return b"".join(_line(row) for row in rows)


def document(content: Row) -> bytes:
    """Returns a JSON file's content."""
    return json.dumps(_plain(content), allow_nan=False, indent=2).encode() + b"\n"


def _read_lines(path: Path, keys: Sequence[str], *, torn_end: bool) -> list[Row]:
    lines = _read(path).splitlines()
    rows: list[Row] = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(_parse(line, keys))
        except ValueError as error:
            if torn_end and number == len(lines):
                break
            raise CheckpointError(f"{path}, line {number}: damaged ({error}); run again, or remove the file") from error
    return rows


def _read_document(path: Path, keys: Sequence[str]) -> Row | None:
    if not path.exists():
        return None
    try:
        return _parse(_read(path), keys)
    except ValueError as error:
        raise CheckpointError(f"{path}: damaged ({error}); run again, or remove the file") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error


def _parse(text: bytes, keys: Sequence[str]) -> Row:
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ValueError(f"expected a JSON object, found {type(content).__name__}")
    if missing := [key for key in keys if key not in content]:
        raise ValueError(f"it lacks {missing[0]!r}")
    return content
