"""Runs that wandb writes offline, read from its own files."""

import json
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from written_runs import round_record

from odt_sim.errors import ConfigurationError
from odt_sim.observers.base import RunInfo
from odt_sim.trackers.wandb import WandB

Track = Callable[..., None]
Expected = dict[str, Any]
BLOCK = 32768


@pytest.fixture(scope="module", autouse=True)
def _wandb() -> None:
    pytest.importorskip("wandb", reason="odt_sim[wandb] is not installed")


def records(folder: Path) -> list[Any]:
    """Read the one offline run of a folder."""
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    return records_of(file)


def records_of(file: Path) -> list[Any]:
    """Read an offline run: a header of 7 bytes, then a LevelDB log of protocol buffers.

    The process of wandb 0.31 may write the file after `finish` has returned.
    """
    for _ in range(300):
        found = records_now(file)
        if any(record.WhichOneof("record_type") == "exit" for record in found):
            return found
        time.sleep(0.1)
    raise AssertionError(f"{file}: no end of the run within 30 s")


def records_now(file: Path) -> list[Any]:
    """Read the current content of an offline run's file."""
    from wandb.proto.wandb_internal_pb2 import Record

    return [Record.FromString(content) for content in logged(file.read_bytes())]


def logged(content: bytes) -> Iterator[bytes]:
    """Split a LevelDB log into its records: chunks of [CRC 4, length 2, type 1], whole or first, middle and last."""
    place, record = 7, b""
    while place + 7 <= len(content):
        if BLOCK - place % BLOCK < 7:
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield record
            record = b""


def values(items: Any) -> dict[str, Any]:
    found = {"/".join([item.key] if item.key else item.nested_key): json.loads(item.value_json) for item in items}
    return {key: value for key, value in found.items() if not key.startswith("_")}


def history(found: list[Any]) -> dict[int, dict[str, float]]:
    return {r.history.step.num: values(r.history.item) for r in found if r.WhichOneof("record_type") == "history"}


def summary(found: list[Any]) -> dict[str, Any]:
    updates = [values(r.summary.update) for r in found if r.WhichOneof("record_type") == "summary"]
    return {key: value for update in updates for key, value in update.items()}


def exit_code(found: list[Any]) -> int:
    (code,) = [r.exit.exit_code for r in found if r.WhichOneof("record_type") == "exit"]
    return int(code)


def test_settings_and_figures(track: Track, expected: Expected, tmp_path: Path) -> None:
    track(WandB("odt_sim", "offline"), tmp_path, name="fedavg seed=0")
    found = records(tmp_path)
    run = next(r.run for r in found if r.WhichOneof("record_type") == "run")
    assert (run.project, run.display_name) == ("odt_sim", "fedavg seed=0")
    assert values(run.config.update) == {
        **{"seed": 0, "run.rounds": 2, "run.resume": None, "train.learning_rate": 0.125},
        **{"strategy._target_": "odt_sim.strategies.averaging.fedavg.FedAvg", "strategy.flags": [True, "two"]},
    }
    assert history(found) == expected["rounds"]
    assert summary(found).items() >= expected["summary"].items()  # in addition to the last round's, which wandb adds
    assert exit_code(found) == 0


def test_failed_run_is_marked_as_failed(track: Track, expected: Expected, tmp_path: Path) -> None:
    track(WandB("odt_sim", "offline"), tmp_path, fails_after=1)
    found = records(tmp_path)
    assert history(found) == {1: expected["rounds"][1]}
    assert exit_code(found) == 1


def test_rounds_are_on_disk_soon(tmp_path: Path) -> None:
    def log(rounds: tuple[int, int], seconds: float) -> bool:
        """Log two rounds; return whether the first is on disk in time. wandb holds the last one back."""
        for number in rounds:
            tracker.on_round(round_record(number))
        until = time.monotonic() + seconds
        while rounds[0] not in history(records_now(file)) and time.monotonic() < until:
            time.sleep(0.1)
        return rounds[0] in history(records_now(file))

    tracker = WandB("odt_sim", "offline")
    tracker.on_begin(RunInfo("local", {}, tmp_path, rounds=4))
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    written = log((1, 2), 30), log((3, 4), 8)  # the first write may be late, the next is not
    tracker.on_end(None)
    assert written == (True, True)


def test_resumed_run_keeps_its_id(tmp_path: Path) -> None:
    first, second, third = (WandB("odt_sim", "offline") for _ in range(3))
    first.on_begin(RunInfo("local", {}, tmp_path, rounds=2))
    first.on_end(None)
    second.on_begin(RunInfo("local", {}, tmp_path, rounds=2, recorded=[round_record(1)]))
    second.on_end(None)
    names = [path.stem for path in tmp_path.glob("wandb/offline-run-*/run-*.wandb")]
    assert len(names) in (1, 2)  # wandb names its folders by time in seconds
    assert len(set(names)) == 1
    third.on_begin(RunInfo("local", {}, tmp_path, rounds=2))
    third.on_end(None)
    assert len({path.stem for path in tmp_path.glob("wandb/offline-run-*/run-*.wandb")}) == 2


def test_unknown_mode_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"tracker\.mode: expected online or offline, found 'dryrun'"):
        WandB("odt_sim", "dryrun")
