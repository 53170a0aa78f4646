"""Folders and objects below a URI behave alike."""

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from odt_sim.errors import CheckpointError, ConfigurationError, FileError
from odt_sim.persistence.object_store import ObjectStore
from odt_sim.persistence.storage import Folder, storage_at


@pytest.fixture
def memory():
    """A URI of this process's memory."""
    yield "memory://odt_sim/run"
    MemoryFileSystem.store.clear()


@pytest.fixture(params=["path", "file", "local", "memory"])
def storage(request, tmp_path, memory):
    """An empty storage: a folder by its path, by its URI and through fsspec, and objects in memory."""
    folder = tmp_path / "a b" / "run"
    places = {"path": folder, "file": f"file://{tmp_path}/a%20b/run/", "local": f"local://{folder}", "memory": memory}
    return storage_at(places[request.param])


def test_path_and_file_uri_name_the_same_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = Folder(tmp_path / "run")
    assert storage_at("run") == storage_at(tmp_path / "run") == storage_at(f"file://{tmp_path}/run") == here
    assert storage_at(f"file:{tmp_path}/run") == here
    monkeypatch.setenv("HOME", str(tmp_path))
    assert storage_at("~/run") == here
    assert storage_at("s3a::x/y") == Folder(tmp_path / "s3a::x" / "y")


def test_relative_file_uri_is_refused():
    with pytest.raises(
        ConfigurationError, match=r"expected an absolute path such as file:///shared/run-1, found file:run$"
    ):
        storage_at("file:run")


def test_files_are_read_and_listed_until_deleted(storage):
    assert storage.names() == []
    storage.replace("server", b"one")
    storage.replace("server", b"two")
    storage.add("devices/000/0.1", b"state")
    storage.add("devices/000/0.1", b"state")
    storage.add("devices/000/7.1", b"")
    storage.sync()
    assert [storage.read(name) for name in ("server", "devices/000/0.1", "devices/000/7.1")] == [b"two", b"state", b""]
    assert sorted(storage.names()) == ["devices/000/0.1", "devices/000/7.1", "server"]
    storage.delete(["devices/000/0.1", "devices/000/0.1", "never"])
    assert sorted(storage.names()) == ["devices/000/7.1", "server"]
    with pytest.raises(CheckpointError) as raised:
        storage.read("devices/000/0.1")
    assert str(raised.value) == f"{storage.where('devices/000/0.1')}: no such checkpoint; restore it from a backup"


def test_failed_write_names_the_file(storage):
    storage.replace("server", b"")
    for write in (storage.replace, storage.add):
        if isinstance(storage, Folder) or storage.uri.startswith("local"):  # objects are no folders
            with pytest.raises(FileError) as raised:
                write("server/below", b"")
            assert "server/below: cannot write it (" in str(raised.value)
            assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        (
            "nonsense://x",
            r"cannot use nonsense://x \(ValueError: Protocol not known: nonsense\); give a folder or a URI",
        ),
        ("file://shared/run", "expected an absolute path such as file:///shared/run-1, found file://shared/run"),
        ("wandb://x/y/z", r"needs a package \(ImportError: .*\); on every node, run: pip install wandbfs"),
    ],
)
def test_unusable_uri_is_refused_in_one_line(uri, message):
    with pytest.raises(ConfigurationError, match=f"^run.storage: .*{message}") as raised:
        storage_at(uri)
    assert "\n" not in str(raised.value)


def test_missing_fsspec_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec.core", None)  # the import fails
    with pytest.raises(ConfigurationError, match=r"needs fsspec; install it: pip install 'odt_sim\[storage\]', or"):
        storage_at("s3://bucket/run")
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    [requirement] = project["optional-dependencies"]["storage"]
    assert requirement.startswith(importlib.import_module("fsspec").__name__)


def test_failing_server_is_reported_in_one_line(memory, monkeypatch):
    def fails(*arguments):
        raise TimeoutError("no answer\nfrom there")

    storage = ObjectStore(memory)
    storage.replace("server", b"")
    for method in ("cat_file", "find", "pipe_file", "rm_file"):
        monkeypatch.setattr(MemoryFileSystem, method, fails)
    read = r"cannot read it \(TimeoutError: no answer\); check"
    calls = [
        (lambda: storage.read("server"), FileError, f"run/server: {read}"),
        (storage.names, FileError, r"run/: cannot list it \(TimeoutError: no answer\); check"),
        (lambda: storage.replace("server", b""), FileError, "run/server: cannot write it"),
        (lambda: storage.delete(["server"]), FileError, "run/server: cannot remove it"),
    ]
    for call, kind, message in calls:
        with pytest.raises(kind, match=message) as raised:
            call()
        assert "\n" not in str(raised.value)


def test_failing_disk_is_reported_in_one_line(tmp_path):
    """The system refuses to read a link to itself, even for root."""
    (tmp_path / "server").symlink_to("server")
    with pytest.raises(FileError, match=r"server: cannot be read \(Too many levels of symbolic links\); check perm"):
        Folder(tmp_path).read("server")


def test_folder_does_not_import_fsspec():
    code = (
        "import sys\n"
        "from odt_sim.simulation.run.coordinator import Simulation\n"
        "from odt_sim.persistence.storage import storage_at\n"
        "storage_at('run'), storage_at('file:///run')\n"
        "print({'fsspec', 'pyarrow'} & sys.modules.keys())\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"
