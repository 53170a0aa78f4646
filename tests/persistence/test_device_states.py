import shutil

import numpy as np
import pytest

from odt_sim.errors import CheckpointError
from odt_sim.model.weights import Weights
from odt_sim.persistence import device_states as store
from odt_sim.persistence.device_states import DeviceStore, RoundStates, pack_state, read_state
from odt_sim.persistence.storage import Folder
from odt_sim.persistence.versions import Version


@pytest.fixture
def state(momentum):
    random = np.random.default_rng(0)
    head = momentum.layout.select(lambda parameter: parameter.group == "head")
    return {
        "own": Weights(head, random.normal(size=head.size).astype(np.float32)),
        "optimizer.0": random.normal(size=(3, 2)).astype(np.float32),
        "steps": np.array(7, np.int64),
    }


@pytest.fixture
def devices(tmp_path, momentum):
    """A store in a temporary folder."""
    return DeviceStore(Folder(tmp_path), momentum)


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.*"))


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    assert found["own"].layout == expected["own"].layout
    np.testing.assert_array_equal(found["own"].vector, expected["own"].vector)
    for name in ("optimizer.0", "steps"):
        assert (found[name].dtype, found[name].shape) == (expected[name].dtype, expected[name].shape)
        np.testing.assert_array_equal(found[name], expected[name])


def test_state_is_read_as_written(tmp_path, devices, state):
    other = {**state, "own": 2 * state["own"]}
    devices.save(Version(5, 1234), {1234: state, 12345: other})
    assert_same(devices.load(1234, Version(5, 1234)), state)
    assert_same(devices.load(12345, Version(5, 1234)), other)
    assert files(tmp_path) == ["devices/001/1234.5.safetensors"]


def test_loaded_state_is_a_copy(devices, state):
    devices.save(Version(1, 0), {0: state})
    devices.load(0, Version(1, 0))["own"].vector[:] = 0
    assert_same(devices.load(0, Version(1, 0)), state)


def test_device_without_a_state_has_an_empty_one(devices):
    assert devices.load(3, None) == {}


def test_rounds_write_separate_files(devices):
    for round in (1, 2):
        devices.save(Version(round, 0), {0: {"steps": np.array(round)}})
    assert [devices.load(0, Version(round, 0))["steps"] for round in (1, 2)] == [1, 2]
    message = r"0\.3\.safetensors: no such checkpoint; restore it from a backup, or remove it and resume"
    with pytest.raises(CheckpointError, match=message):
        devices.load(0, Version(3, 0))


def test_leftovers_of_a_killed_process_are_overwritten(tmp_path, devices, state):
    devices.save(Version(1, 0), {0: state})
    path = tmp_path / "devices/000/0.1.safetensors"
    whole = path.read_bytes()
    for left in (b"", whole[:50], whole, whole + b"more"):
        path.write_bytes(left)
        devices.save(Version(1, 0), {0: state})
        assert path.read_bytes() == whole


def test_only_small_states_share_a_file(tmp_path, devices, monkeypatch):
    monkeypatch.setattr(store, "GROUPED", 100)
    states = RoundStates(devices, 3)
    sizes = {4: 20, 5: 20, 7: 5, 8: 40, 9: 4}  # float32
    found = {id: states.add(id, {"v": np.full(size, id, np.float32)}) for id, size in sizes.items()}
    assert found == {4: 4, 5: 4, 7: 7, 8: 7, 9: 9}
    states.write()
    states.write()  # writes nothing
    assert files(tmp_path) == [f"devices/000/{first}.3.safetensors" for first in (4, 7, 9)]
    for id, first in found.items():
        assert devices.load(id, Version(3, first))["v"].tolist() == [id] * sizes[id]


def test_gathered_state_is_a_copy(devices):
    states, own = RoundStates(devices, 1), np.zeros(2)
    states.add(0, {"v": own})
    own[:] = 1
    states.write()
    assert devices.load(0, Version(1, 0))["v"].tolist() == [0, 0]


def test_state_of_another_model_is_refused(tmp_path, devices, adam, state):
    devices.save(Version(1, 0), {0: state})
    with pytest.raises(CheckpointError, match="belongs to a different model"):
        DeviceStore(Folder(tmp_path), adam).load(0, Version(1, 0))


def test_copy_of_another_file_is_refused(tmp_path, devices, state):
    """A copy of a file of another round, and of another block of the same round."""
    devices.save(Version(1, 0), {0: state})
    for copy in (Version(2, 0), Version(1, 7)):
        path = tmp_path / store.state_name(copy)
        shutil.copy(tmp_path / "devices/000/0.1.safetensors", path)
        with pytest.raises(
            CheckpointError, match=rf"^{path}: contains a copy of devices/000/0\.1\.safetensors; restore its own"
        ):
            devices.load(0, copy)


def test_texts_are_stored_beside_a_state(tmp_path, momentum, state):
    (tmp_path / "state").write_bytes(pack_state("state", state, momentum, {"round": "4", "seed": "0"}))
    found, texts = read_state(Folder(tmp_path), "state", momentum)
    assert_same(found, state)
    assert texts == {"round": "4", "seed": "0"}


def test_equal_layouts_are_stored_once(momentum, state):
    content = pack_state("state", {"a": state["own"], "b": 2 * state["own"]}, momentum, {})
    assert content.count(state["own"].layout.names[0].encode()) == 1


def test_bytes_do_not_depend_on_the_order_of_the_state(momentum, state):
    other = state["own"].select(state["own"].layout.select(lambda parameter: parameter.group == "head"))
    given = {"b": state["own"], "a": other}
    contents = {pack_state("state", dict(pairs), momentum, {}) for pairs in (given.items(), reversed(given.items()))}
    assert len(contents) == 1
