import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from odt_sim.data import federate
from odt_sim.data.dataset import Dataset
from odt_sim.data.devices.partition import by_user
from odt_sim.data.sources.builtin import digits, function, npz
from odt_sim.errors import DataError

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "data"


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "points.npz"
    np.savez(path, x=np.eye(3), label=np.array([1, 0, 3]), who=np.array([5, 5, 9]))
    return path


def shared(name):
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"the shared data folder has no {name}")
    return path


def test_import_is_light():
    heavy = {"sklearn", "keras", "tensorflow", "ray", "pandas", "scipy"}
    code = f"import sys, odt_sim.data; odt_sim.data.digits(); print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_digits():
    dataset = digits()
    assert dataset.x.shape == (1797, 8, 8, 1)
    assert (dataset.x.dtype, dataset.y.dtype) == (np.float32, np.int32)
    assert (dataset.x.min(), dataset.x.max(), dataset.classes) == (0, 1, 10)
    assert dataset.x[0, 0, :, 0].tolist() == [0, 0, 5 / 16, 13 / 16, 9 / 16, 1 / 16, 0, 0]
    assert np.bincount(dataset.y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_npz_reads_arrays_by_name(saved):
    dataset = npz(saved, y="label", users="who", classes=5)
    assert dataset.name == "points"
    assert dataset.x.tolist() == np.eye(3).tolist()
    assert dataset.y.tolist() == [1, 0, 3]
    assert dataset.users.tolist() == [5, 5, 9]
    assert dataset.classes == 5


def test_mnist():
    dataset = npz(shared("mnist.npz"))
    assert dataset.x.shape == (70000, 28, 28, 1)
    assert dataset.x.max() == 1
    assert dataset.classes == 10


def test_human_activity():
    dataset = npz(shared("uci_har_raw.npz"), users="subject")
    assert dataset.x.shape == (10299, 9, 128)
    assert (dataset.y.dtype, dataset.classes) == (np.int32, 6)
    data = federate(dataset, by_user, None, 0)
    assert data.devices == 30
    assert set(dataset.users[data.train(29)]) == {30}


def test_school_scores_are_regression():
    dataset = npz(shared("school.npz"), users="school")
    assert dataset.x.shape == (15362, 28)
    assert (dataset.y.dtype, dataset.classes) == (np.float32, None)
    assert federate(dataset, by_user, 20, 0).devices == 20


def write_text(path):
    path.write_text("hello")


def write_array(path):
    with path.open("wb") as file:
        np.save(file, np.eye(2))


def write_damaged(path):
    np.savez(path, x=np.eye(3), y=np.array([1, 0, 3]))
    content = bytearray(path.read_bytes())
    content[100:160] = bytes(60)
    path.write_bytes(content)


def write_objects(path):
    np.savez(path, x=np.array([[1], [1, 2]], object), y=np.array([0, 1]))


def write_members(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x", "hello")
        file.writestr("y", "hello")


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: None, "no such file"),
        (Path.mkdir, r"is a folder; give the path of an \.npz file$"),
        (write_text, r"is not an \.npz file"),
        (write_array, r"is not an \.npz file"),
        (write_damaged, ".*(damaged|cannot be read)"),
        (write_objects, r"array 'x' cannot be read .*pickled"),
        (write_members, "'x' is not an array"),
        (lambda path: np.savez(path, x=np.eye(3), label=np.zeros(3)), "has no array 'y'; found: x, label"),
    ],
)
def test_unusable_npz_is_refused_in_one_line(tmp_path, write, message):
    write(tmp_path / "points.npz")
    with pytest.raises(DataError, match=rf"points\.npz: {message}") as caught:
        npz(tmp_path / "points.npz")
    assert "\n" not in str(caught.value)


PYTHON = """
from __future__ import annotations
from dataclasses import dataclass
import numpy as np
from odt_sim.data import Dataset

@dataclass
class Settings:
    rows: int

def pair(rows=4):
    return np.ones((Settings(rows).rows, 2)), np.zeros(rows, int)

def triple():
    return np.ones((2, 2)), np.zeros(2), np.array([7, 8])

def whole():
    return Dataset("mine", np.ones((2, 2)), np.array([0, 1]), classes=4)

def wrong():
    return np.ones(3)

constant = 3
"""


@pytest.fixture
def python_file(tmp_path):
    path = tmp_path / "my_data.py"
    path.write_text(PYTHON)
    return path


def test_function_in_a_file_is_called(python_file):
    pair = function(f"{python_file}:pair", rows=3)
    assert (pair.name, pair.x.shape, pair.classes) == ("pair", (3, 2), 1)
    triple = function(f"{python_file}:triple")
    assert (triple.users.tolist(), triple.classes) == ([7, 8], None)
    whole = function(f"{python_file}:whole")
    assert (whole.name, whole.y.dtype, whole.classes) == ("mine", np.int32, 4)


def test_function_in_a_package_is_called():
    assert function("odt_sim.data.sources.builtin.digits").name == "digits"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("digits", "data digits: expected package.module.name or path/to/file.py:name"),
        ("no_such_package.data", "data no_such_package.data: cannot import no_such_package"),
        ("odt_sim.data.sources.builtin.nothing", "odt_sim.data.sources.builtin has no function 'nothing'"),
        ("{file}:constant", "has no function 'constant'"),
        ("{file}:wrong", "returned a ndarray, expected a Dataset"),
        ("{folder}/none.py:load", "none.py:load: cannot import"),
        ("{folder}/none.txt:load", "none.txt:load: cannot import"),
    ],
)
def test_wrong_target_is_refused(target, message, python_file):
    with pytest.raises(DataError, match=message):
        function(target.format(file=python_file, folder=python_file.parent))


def test_wrong_arguments_are_refused(python_file):
    with pytest.raises(DataError, match=r"'columns'; the signature of the function is \(rows=4\)"):
        function(f"{python_file}:pair", columns=3)


def configured(file, **changes):
    return instantiate(OmegaConf.merge(OmegaConf.load(ROOT / "conf" / file), changes))


def test_every_data_configuration_returns_data(saved, python_file):
    assert configured("data/digits.yaml").name == "digits"
    assert configured("data/npz.yaml", path=str(saved), y="label").classes == 4
    assert configured("data/function.yaml", target=f"{python_file}:pair", rows=6).x.shape == (6, 2)


@pytest.mark.parametrize("name", [path.stem for path in sorted((ROOT / "conf" / "partition").glob("*.yaml"))])
def test_every_partition_configuration_partitions(name):
    if name == "flower":
        pytest.importorskip("flwr_datasets", reason="flwr-datasets is not installed; run make test-flower")
    y = np.tile(np.arange(4), 50)
    dataset = Dataset("d", np.zeros((200, 1), np.float32), y, np.arange(200) // 20, 4)
    assert federate(dataset, configured(f"partition/{name}.yaml"), 5, 0).devices == 5
