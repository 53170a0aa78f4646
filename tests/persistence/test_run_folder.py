import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from written_runs import round_record

from odt_sim.errors import CheckpointError, FileError
from odt_sim.persistence.records import DeviceRecord, columns_of
from odt_sim.persistence.run_folder import DEVICES, FAILURE, ROUNDS, SUMMARY, RunFolder, is_run_folder
from odt_sim.persistence.summary import Summary

DEVICE = {"device": 0, "seen": True, "train_examples": 4, "examples": 1}
COMPLETE = Summary.of(dict.fromkeys(columns_of(Summary)))


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path)


def test_rounds_are_read_back_in_order(folder):
    for number in (1, 2, 3):
        folder.append_rounds(round_record(number, train_loss=0.5))
    assert folder.rounds() == [round_record(number, train_loss=0.5) for number in (1, 2, 3)]


def test_folder_without_records_is_empty(folder):
    assert (folder.rounds(), folder.devices(), folder.summary(), folder.failure()) == ([], [], None, None)
    assert not is_run_folder(folder.path)
    folder.truncate_rounds(3)
    assert not is_run_folder(folder.path)


@given(whole=st.integers(0, 3), cut=st.integers(1, 40))
def test_torn_last_line_is_dropped(tmp_path_factory, whole, cut):
    folder = RunFolder(tmp_path_factory.mktemp("torn"))
    torn = json.dumps(dict(round_record(whole + 1, train_loss=0.123456789))).encode()
    cut = min(cut, len(torn) - 1)
    for number in range(1, whole + 1):
        folder.append_rounds(round_record(number))
    with (folder.path / ROUNDS).open("ab") as file:
        file.write(torn[:cut])
    assert [row["round"] for row in folder.rounds()] == list(range(1, whole + 1))
    folder.truncate_rounds(whole)
    folder.append_rounds(round_record(whole + 1))
    assert [row["round"] for row in folder.rounds()] == list(range(1, whole + 2))


def test_truncating_keeps_the_committed_rounds(folder):
    for number in (1, 2, 3, 4):
        folder.append_rounds(round_record(number))
    folder.truncate_rounds(2)
    assert [row["round"] for row in folder.rounds()] == [1, 2]
    folder.truncate_rounds(0)
    assert folder.rounds() == []


def test_damaged_line_in_the_middle_is_named(folder):
    (folder.path / ROUNDS).write_text(
        f'{json.dumps(dict(round_record(1)))}\n{{"rou\n{json.dumps(dict(round_record(3)))}\n'
    )
    with pytest.raises(CheckpointError, match=rf"{ROUNDS}, line 2: damaged"):
        folder.rounds()


@pytest.mark.parametrize("text", ['{"device": 0, "se', "[1, 2]\n", '{"seen": true}\n', "\0\0\0"])
def test_damaged_devices_are_named(folder, text):
    (folder.path / DEVICES).write_text(text)
    with pytest.raises(CheckpointError, match=rf"{DEVICES}, line 1: damaged") as caught:
        folder.devices()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"strategy": "fedavg"}', "\0"])
def test_damaged_summary_is_named(folder, text):
    (folder.path / SUMMARY).write_text(text)
    with pytest.raises(CheckpointError, match=rf"{SUMMARY}: damaged") as caught:
        folder.summary()
    assert "\n" not in str(caught.value)


def test_values_that_are_not_finite_become_null(folder):
    values = {"a": float("nan"), "b": float("inf"), "c": np.float32("nan"), "d": [-np.inf, 1.0], "e": {"f": np.nan}}
    folder.append_rounds(round_record(1, **values))
    folder.write_devices([DeviceRecord.of(DEVICE | values)])
    folder.write_summary(Summary.of({**COMPLETE, **values}))
    expected = {"a": None, "b": None, "c": None, "d": [None, 1.0], "e": {"f": None}}

    def strict(name):
        raise AssertionError(f"{name} is no JSON")

    for name in (ROUNDS, DEVICES, SUMMARY):
        found = json.loads((folder.path / name).read_text(), parse_constant=strict)
        assert {key: found[key] for key in values} == expected


def test_numpy_values_are_plain_numbers(folder):
    values = {"examples": np.int64(3), "seen": np.bool_(False), "m": np.float32(0.5), "v": np.arange(2)}
    folder.write_devices([DeviceRecord.of(DEVICE | values)])
    assert folder.devices() == [DEVICE | {"examples": 3, "seen": False, "m": 0.5, "v": [0, 1]}]


def test_summary_ends_an_earlier_failure(folder):
    folder.write_failure("workers died:\n  all of them", ["strategy=fedavg"])
    assert folder.failure() == {
        "error": "workers died: all of them",
        "overrides": ["strategy=fedavg"],
        "transient": False,
    }
    assert is_run_folder(folder.path)
    folder.write_summary(COMPLETE)
    assert folder.failure() is None
    assert {path.name for path in folder.path.iterdir()} == {SUMMARY}


def test_unwritable_folder_is_one_line(tmp_path):
    (tmp_path / "taken").touch()
    folder = RunFolder(tmp_path / "taken")
    for write in (
        lambda: folder.append_rounds(round_record(1)),
        lambda: folder.write_devices([]),
        lambda: folder.write_summary(COMPLETE),
    ):
        with pytest.raises(FileError, match=r"taken.*: cannot write it \((Not a directory|File exists)\)") as caught:
            write()
        assert "\n" not in str(caught.value)


def test_full_disk_leaves_earlier_records_whole(folder):
    """A limit on file sizes refuses further bytes, as a full disk does."""
    folder.append_rounds(round_record(1))
    folder.write_summary(COMPLETE)
    program = f"""
import resource
from pathlib import Path
from odt_sim.errors import FileError
from odt_sim.persistence.run_folder import RunFolder
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
folder = RunFolder(Path({str(folder.path)!r}))
row = {{"round": 2, "text": "x" * 5000}}  # writing needs a mapping only
for write in (lambda: folder.append_rounds(row), lambda: folder.write_summary(row), lambda: folder.write_devices([row])):
    try:
        write()
    except FileError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    messages = done.stdout.splitlines()
    assert len(messages) == 3
    assert all("cannot write it" in message for message in messages)
    assert folder.rounds() == [round_record(1)]
    assert folder.summary() == COMPLETE
    assert {path.name for path in folder.path.iterdir()} == {ROUNDS, SUMMARY}


def test_folder_with_a_failure_is_a_run_folder(folder):
    folder.write_failure("no such strategy", [])
    assert (folder.path / FAILURE).is_file()
    assert is_run_folder(folder.path)


def test_records_import_nothing_heavy():
    heavy = {"matplotlib", "pandas", "rich", "tensorflow", "ray", "scipy"}
    program = "import sys, odt_sim.persistence.run_folder; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not heavy & set(loaded)
