"""A folder belongs to one process at a time."""

import errno
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from odt_sim.cli.hydra import build as configuration
from odt_sim.cli.hydra.overrides import composed
from odt_sim.errors import CheckpointError, FileError
from odt_sim.persistence.storage import locked, storage_at

HOLDS = """
import sys
from pathlib import Path
from odt_sim.persistence.storage import locked
with locked(Path(sys.argv[1]), print):
    print("locked", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(folder):
    """Hold a folder's lock in another process, which is killed at the end."""
    command = [sys.executable, "-c", HOLDS, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "locked\n"
        try:
            yield
        finally:
            child.kill()


def test_other_process_is_refused_until_the_first_exits(tmp_path):
    with (
        held(tmp_path / "run"),
        pytest.raises(CheckpointError, match=r"run: in use by another process; wait until"),
    ):
        locked(tmp_path / "run", pytest.fail).__enter__()
    with locked(tmp_path / "run", pytest.fail):
        pass


def test_lock_is_reentrant(tmp_path):
    with locked(tmp_path, pytest.fail), locked(tmp_path, pytest.fail):
        pass
    with held(tmp_path):
        pass


def test_runs_never_share_a_storage(tmp_path, softmax):
    """Also before either has committed a round."""
    given = ["model=softmax", "fleet.devices=4", "fleet.unseen=0", "run.rounds=1", f"run.storage={tmp_path}/kept"]
    run = configuration.simulation(composed([*given, "backend=serial"]), tmp_path / "run")
    with held(tmp_path / "kept"), pytest.raises(CheckpointError, match=r"kept: in use by another process"):
        run.run()
    assert not (tmp_path / "run" / "rounds.jsonl").exists()
    run.run()
    assert (tmp_path / "kept" / "server.1.safetensors").exists()


def test_impossible_folder_is_refused_in_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        FileError, match=r"file/run/\.lock: cannot write it \(Not a directory\); choose another location"
    ):
        locked(tmp_path / "file" / "run", pytest.fail).__enter__()


def test_impossible_storage_is_refused_with_its_setting():
    message = r"run\.storage: /proc/none/\.lock: cannot write it \(No such file or directory\); choose another location"
    with pytest.raises(FileError, match=message):
        storage_at("/proc/none").locked(pytest.fail).__enter__()


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_file_system_without_locks_warns(tmp_path, monkeypatch, number):
    def flock(descriptor, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", flock)
    warnings = []
    block = locked(tmp_path, warnings.append)
    block.__enter__()
    left = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert warnings == [
        f"{tmp_path}: its file system does not support locks (flock); check that no other process uses it"
    ]
    assert not any(left.values())  # no file replaces the lock
    with locked(tmp_path, warnings.append):
        pass
    block.__exit__(None, None, None)
