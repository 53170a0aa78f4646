"""A file is written whole or not at all, and nothing is left beside it."""

import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from odt_sim.errors import FileError
from odt_sim.files import cache_folder, remove_temporaries, sync_file_system, write_file

LIMITED = """
import pathlib, resource, sys
from odt_sim.errors import FileError
from odt_sim.files import write_file
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    write_file(pathlib.Path(sys.argv[1]), bytes(5000))
except FileError as error:
    print(error)
"""
INTERRUPTED = """
import pathlib, sys
from odt_sim.files import write_file
def interrupt(event, given):
    if event == "os.rename":
        raise KeyboardInterrupt
sys.addaudithook(interrupt)
try:
    write_file(pathlib.Path(sys.argv[1]), b"new")
except KeyboardInterrupt:
    print("interrupted")
"""
KILLED = """
import os, pathlib, signal, sys
from odt_sim.files import write_file
sys.addaudithook(lambda event, given: os.kill(os.getpid(), signal.SIGKILL) if event == "os.rename" else None)
write_file(pathlib.Path(sys.argv[1]), b"new")
"""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def child(program, path):
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_file_is_made_with_its_folders_and_then_replaced(tmp_path):
    path = tmp_path / "a" / "b" / "state"
    write_file(path, b"old and longer")
    assert path.read_bytes() == b"old and longer"
    write_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert names(path.parent) == ["state"]


def test_others_may_read_it_as_any_file(tmp_path):
    """A temporary file of Python's `tempfile` would be its owner's only."""
    write_file(tmp_path / "written", b"")
    (tmp_path / "plain").touch()
    assert stat.S_IMODE((tmp_path / "written").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_a_full_disk_leaves_the_old_file(tmp_path):
    """A limit on the size of files makes the system refuse further bytes, as a full disk does."""
    path = tmp_path / "state"
    path.write_bytes(b"old")
    assert child(LIMITED, path) == f"{path}: cannot write it (File too large); make room there or choose another place"
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["state"]


def test_an_interrupt_before_the_file_takes_its_place_leaves_the_old_file(tmp_path):
    path = tmp_path / "state"
    path.write_bytes(b"old")
    assert child(INTERRUPTED, path) == "interrupted"
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["state"]


def test_what_a_killed_write_left_is_removed_and_nothing_else(tmp_path):
    theirs = [
        "state",
        "state.0a1b2c3d.part",
        ".state.20251122",
        ".state.backup",
        ".state.part",
        ".state.0A1B2C3D.part",
        ".state.0a1b2c3d4.part",
        ".other.0a1b2c3d.part",
        ".state",
    ]
    for name in theirs:
        (tmp_path / name).write_bytes(b"mine")
    (tmp_path / ".more.0a1b2c3d.part").mkdir()
    killed = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "state"], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(names(tmp_path)) == len(theirs) + 2
    remove_temporaries(tmp_path, ["state", "more"])
    assert names(tmp_path) == sorted([*theirs, ".more.0a1b2c3d.part"])
    with pytest.raises(FileError, match=r"none: cannot write it \(No such file or directory\)"):
        remove_temporaries(tmp_path / "none", ["state"])


def test_what_is_gone_when_it_is_to_be_removed_is_no_error(tmp_path, monkeypatch):
    unlink = os.unlink
    monkeypatch.setattr(os, "unlink", lambda path: (unlink(path), unlink(path)))  # another process is first
    (tmp_path / ".state.0a1b2c3d.part").touch()
    remove_temporaries(tmp_path, ["state"])
    assert names(tmp_path) == []


def test_a_place_that_is_a_folder(tmp_path):
    (tmp_path / "state").mkdir()
    with pytest.raises(FileError, match=r"state: cannot write it \(Is a directory\)"):
        write_file(tmp_path / "state", b"new")
    assert names(tmp_path) == ["state"]


@pytest.mark.parametrize("below", ["file/state", "file/folder/state"])
def test_a_folder_that_is_a_file(tmp_path, below):
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(FileError, match=r"cannot write it \((File exists|Not a directory)\)"):
        write_file(tmp_path / below, b"new")
    assert (tmp_path / "file").read_bytes() == b"old"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(tmp_path):
    (tmp_path / "state").write_bytes(b"old")
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(FileError, match=r"cannot write it \(Permission denied\)"):
            write_file(tmp_path / "state", b"new")
    finally:
        tmp_path.chmod(0o700)
    assert (tmp_path / "state").read_bytes() == b"old"


def test_writers_of_one_file_do_not_meet(tmp_path):
    """Each has a temporary file of its own, so that the last to end leaves what it wrote, whole."""
    contents = [bytes([writer]) * 100_000 for writer in range(20)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: write_file(tmp_path / "state", content), contents))
    assert (tmp_path / "state").read_bytes() in contents
    assert names(tmp_path) == ["state"]


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch):
    monkeypatch.setenv("ODT_SIM_CACHE", "~nobody-of-this-name")
    with pytest.raises(
        FileError, match=r"^cache: Could not determine home directory.*; set ODT_SIM_CACHE to a writable"
    ):
        cache_folder("models")


def test_a_folder_is_synced_or_the_error_names_it(tmp_path):
    (tmp_path / "state").write_bytes(b"new")
    sync_file_system(tmp_path)
    assert (tmp_path / "state").read_bytes() == b"new"
    with pytest.raises(FileError, match=r"none: cannot write it \(No such file or directory\)"):
        sync_file_system(tmp_path / "none")
