"""Files are written atomically, and no temporary file is left."""

import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from odt_sim._support.files import cache_folder, remove_temporaries, sync_file_system, write_file
from odt_sim.errors import FileError

KILLED = """
import os, pathlib, signal, sys
from odt_sim._support.files import write_file
sys.addaudithook(lambda event, given: os.kill(os.getpid(), signal.SIGKILL) if event == "os.rename" else None)
write_file(pathlib.Path(sys.argv[1]), b"new")
"""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_file_is_created_with_its_folders_and_then_replaced(tmp_path):
    path = tmp_path / "a" / "b" / "state"
    write_file(path, b"old and longer")
    assert path.read_bytes() == b"old and longer"
    write_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert names(path.parent) == ["state"]


def test_file_has_the_usual_permissions(tmp_path):
    """Python's `tempfile` would make it readable by its owner only."""
    write_file(tmp_path / "written", b"")
    (tmp_path / "plain").touch()
    assert stat.S_IMODE((tmp_path / "written").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


@pytest.mark.parametrize("error", [OSError(27, "File too large"), KeyboardInterrupt()], ids=["full disk", "interrupt"])
def test_failed_write_leaves_the_old_file(tmp_path, monkeypatch, error):
    def fail(descriptor):
        raise error

    path = tmp_path / "state"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises((FileError, KeyboardInterrupt)) as raised:
        write_file(path, b"new")
    if isinstance(error, OSError):
        message = f"{path}: cannot write it (File too large); free space there, or choose another location"
        assert str(raised.value) == message
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["state"]


def test_only_temporary_files_of_killed_writes_are_removed(tmp_path):
    others = [
        "state",
        "state.0a1b2c3d.part",
        ".state.20251122",
        ".state.part",
        ".state.0A1B2C3D.part",
        ".state.0a1b2c3d4.part",
        ".other.0a1b2c3d.part",
    ]
    for name in others:
        (tmp_path / name).write_bytes(b"mine")
    (tmp_path / ".more.0a1b2c3d.part").mkdir()
    killed = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "state"], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(names(tmp_path)) == len(others) + 2
    remove_temporaries(tmp_path, ["state", "more"])
    assert names(tmp_path) == sorted([*others, ".more.0a1b2c3d.part"])
    with pytest.raises(FileError, match=r"none: cannot write it \(No such file or directory\)"):
        remove_temporaries(tmp_path / "none", ["state"])


@pytest.mark.parametrize("below", ["file/state", "file/folder/state", "folder"])
def test_impossible_path_is_refused(tmp_path, below):
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileError, match=r"cannot write it \((File exists|Not a directory|Is a directory)\)"):
        write_file(tmp_path / below, b"new")
    assert (tmp_path / "file").read_bytes() == b"old"
    assert names(tmp_path) == ["file", "folder"]


def test_concurrent_writers_leave_one_whole_content(tmp_path):
    contents = [bytes([writer]) * 100_000 for writer in range(20)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: write_file(tmp_path / "state", content), contents))
    assert (tmp_path / "state").read_bytes() in contents
    assert names(tmp_path) == ["state"]


def test_missing_home_folder_is_explained(monkeypatch):
    monkeypatch.setenv("ODT_SIM_CACHE", "~nobody-of-this-name")
    with pytest.raises(FileError, match=r"^cache: Could not determine home directory; set ODT_SIM_CACHE to a writ"):
        cache_folder("models")


def test_file_system_is_synced_or_the_error_names_the_folder(tmp_path):
    sync_file_system(tmp_path)
    with pytest.raises(FileError, match=r"none: cannot write it \(No such file or directory\)"):
        sync_file_system(tmp_path / "none")
