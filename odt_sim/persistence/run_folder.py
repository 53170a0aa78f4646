"""Write and read a run's records: `rounds.jsonl`, `timeline.jsonl`, `devices.jsonl`, `summary.json`, `failure.json`.

All are strict JSON: a number that is not finite becomes null. A killed run may leave an incomplete last line in
`rounds.jsonl` and `timeline.jsonl`; the other files are replaced atomically.
"""

import json
import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from odt_sim._support.files import sync_content, sync_names, unwritable, write_file
from odt_sim._support.text import one_line
from odt_sim.errors import CheckpointError
from odt_sim.persistence.records import DeviceRecord, RoundRecord
from odt_sim.persistence.summary import Summary
from odt_sim.persistence.timeline import TimelineRecord

SEARCH_PATH = "hydra.searchpath="
"""The beginning of the override that adds folders or packages with further options."""


T = TypeVar("T")

INITIAL_MODEL, TRAINED_MODEL = "initial.tflite", "model.tflite"
TIMELINE = "timeline.jsonl"
CODE = "code.json"  # digests of the code of odt_sim and of the user; absent in runs of earlier versions
SWEEP, BEST = "multirun.yaml", "best.json"  # in the folder of a sweep: its settings, and the best trial of a search
TUNING, TASK = "tuning.json", "task.json"  # in the folder of a tuning: its choice, and the settings of its trials
SEARCH, TUNED = "search", "tuned"  # folders in it: the trials, and the runs of the winners
RECORDS = ROUNDS, DEVICES, SUMMARY, FAILURE = "rounds.jsonl", "devices.jsonl", "summary.json", "failure.json"


@dataclass(frozen=True)
class RunFolder:
    """The records of one run on disk.

    Attributes:
        path: The run's folder; it exists before the first record is written.
    """

    path: Path

    def append_rounds(self, *records: RoundRecord) -> None:
        """Append lines to `rounds.jsonl` durably; if the disk is full, the earlier lines stay intact.

        A resumed run calls `truncate_rounds` first, which also drops an incomplete last line.

        Raises:
            FileError: The file cannot be written.
        """
        self._append(ROUNDS, *records)

    def append_timeline(self, record: TimelineRecord) -> None:
        """Append one line to `timeline.jsonl`, before the round's line of `rounds.jsonl`.

        Raises:
            FileError: The file cannot be written.
        """
        self._append(TIMELINE, record)

    def _append(self, name: str, *records: Mapping[str, Any]) -> None:
        path = self.path / name
        try:
            with path.open("ab", buffering=0) as file:
                size = file.tell()
                lines = _lines(records)
                try:
                    if file.write(lines) != len(lines):
                        raise OSError(None, "only part of a line was written")
                    sync_content(file.fileno())
                    if not size:
                        sync_names(self.path)
                except OSError:
                    file.truncate(size)
                    raise
        except OSError as error:
            raise unwritable(path, error) from error

    def truncate_rounds(self, rounds: int) -> None:
        """Keep only the lines of the rounds 1 to `rounds`, the last committed round; also in the timeline.

        Raises:
            CheckpointError: A file is damaged before its last line.
            FileError: A file cannot be written.
        """
        for name, read in ((ROUNDS, self.rounds), (TIMELINE, self.timeline)):
            if (self.path / name).exists():
                write_file(self.path / name, _lines(record for record in read() if record.round <= rounds))
                sync_names(self.path)

    def replace_last_round(self, record: RoundRecord) -> None:
        """Replace the last line of `rounds.jsonl`.

        Raises:
            CheckpointError: The file is damaged before its last line.
            FileError: The file cannot be written.
        """
        write_file(self.path / ROUNDS, _lines([*self.rounds()[:-1], record]))
        sync_names(self.path)

    def rounds(self) -> list[RoundRecord]:
        """Return the rounds' records in order, without an incomplete last line; empty without a file.

        Raises:
            CheckpointError: The file is damaged before its last line.
        """
        return _read_lines(self.path / ROUNDS, RoundRecord.of, torn_end=True)

    def timeline(self) -> list[TimelineRecord]:
        """Return the timeline of a run with a clock, without an incomplete last line; empty without a file.

        Raises:
            CheckpointError: The file is damaged before its last line.
        """
        return _read_lines(self.path / TIMELINE, TimelineRecord.of, torn_end=True)

    def write_devices(self, records: Iterable[DeviceRecord]) -> None:
        """Write `devices.jsonl`.

        Raises:
            FileError: The file cannot be written.
        """
        write_file(self.path / DEVICES, _lines(records))

    def devices(self) -> list[DeviceRecord]:
        """Return the devices' records in order; empty without a file.

        Raises:
            CheckpointError: The file is damaged.
        """
        return _read_lines(self.path / DEVICES, DeviceRecord.of, torn_end=False)

    def write_summary(self, summary: Summary) -> None:
        """Write `summary.json`, and drop the record of an earlier failure.

        Raises:
            FileError: The file cannot be written.
        """
        write_file(self.path / SUMMARY, document(summary))
        with suppress(FileNotFoundError):
            (self.path / FAILURE).unlink()

    def summary(self) -> Summary | None:
        """Return the summary, or None if the run is not complete.

        Raises:
            CheckpointError: The file is damaged.
        """
        return _read_document(self.path / SUMMARY, Summary.of)

    def code(self) -> dict[str, str]:
        """Return the digests of the user's strategy and aggregator code, and Python's version; empty if none."""
        try:
            return dict(json.loads((self.path / CODE).read_text()))
        except (OSError, ValueError, TypeError):
            return {}  # missing or damaged: only the comparison of code is lost

    def holds_results(self) -> bool:
        """Return whether the folder contains rounds of a run or its summary; a recorded failure is no result.

        Raises:
            CheckpointError: These files are damaged.
        """
        return bool(self.rounds()) or self.summary() is not None

    def reopen(self) -> None:
        """Remove the summary, the devices' records and the trained model of a run that resumes with more rounds.

        The summary is removed first: with a summary, the devices' records would count as the run's results.

        Raises:
            FileError: A file cannot be removed.
        """
        for name in (SUMMARY, DEVICES, TRAINED_MODEL):
            try:
                (self.path / name).unlink(missing_ok=True)
            except OSError as error:
                raise unwritable(self.path / name, error) from error

    def write_failure(self, error: str, overrides: Sequence[str], *, transient: bool = False) -> None:
        """Write `failure.json` for a run that ended early.

        Args:
            error: The reason, in one line.
            overrides: The Hydra overrides of the run, by which a report labels it.
            transient: Whether the same settings may succeed later.

        Raises:
            FileError: The file cannot be written.
        """
        content = {"error": one_line(error), "overrides": list(overrides), "transient": transient}
        write_file(self.path / FAILURE, document(content))

    def failure(self) -> Mapping[str, Any] | None:
        """Return `error` and `overrides` of a run that ended early, or None.

        Raises:
            CheckpointError: The file is damaged.
        """
        return _read_document(self.path / FAILURE, _failure)


def is_run_folder(path: Path) -> bool:
    """Return whether a folder contains a run's records."""
    return any((path / name).is_file() for name in (SUMMARY, FAILURE, ROUNDS))


def checksum(records: Iterable[Mapping[str, Any]], before: int = 0) -> int:
    """Return the CRC-32 of rounds' records without their times, continued from the CRC-32 of the earlier rounds."""
    return zlib.crc32(_lines({n: value for n, value in record.items() if n != "seconds"} for record in records), before)


def document(content: Mapping[str, Any]) -> bytes:
    """Return the content of a JSON file."""
    return json.dumps(_plain(content), allow_nan=False, indent=2).encode() + b"\n"


def _plain(value: Any) -> Any:
    """Convert a value to types that strict JSON can represent."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(_plain(record), allow_nan=False).encode() + b"\n"


def _lines(records: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(map(_line, records))


def _read_lines(path: Path, parse: Callable[[Mapping[str, Any]], T], *, torn_end: bool) -> list[T]:
    records: list[T] = []
    lines = _read(path).splitlines() if path.exists() else []
    for number, line in enumerate(lines, 1):
        try:
            records.append(parse(_object(line)))
        except ValueError as error:
            if torn_end and number == len(lines):
                break
            raise CheckpointError(f"{path}, line {number}: damaged ({error}); run again, or remove the file") from error
    return records


def _read_document(path: Path, parse: Callable[[Mapping[str, Any]], T]) -> T | None:
    if not path.exists():
        return None
    try:
        return parse(_object(_read(path)))
    except ValueError as error:
        raise CheckpointError(f"{path}: damaged ({error}); run again, or remove the file") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error


def _object(text: bytes) -> Mapping[str, Any]:
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ValueError(f"expected a JSON object, found {type(content).__name__}")
    return content


def _failure(content: Mapping[str, Any]) -> Mapping[str, Any]:
    if "error" not in content:
        raise ValueError("it lacks 'error'")
    return content


def config_folders(hydra: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the arguments of a run that name folders of further options, given Hydra's part of its configuration."""
    sources = hydra.get("runtime", {}).get("config_sources", ())
    given = [f"--config-dir={source['path']}" for source in sources if source["provider"] == "command-line"]
    overrides = hydra.get("overrides", {}).get("hydra", ())
    return (*given, *(each for each in overrides if each.startswith(SEARCH_PATH)))
