import numpy as np
import pytest

from odt_sim.errors import CheckpointError
from odt_sim.model.weights import Weights
from odt_sim.simulation.store import DeviceStore, read_state, write_state


@pytest.fixture
def state(momentum):
    random = np.random.default_rng(0)
    head = momentum.layout.select(lambda parameter: parameter.group == "head")
    return {
        "own": Weights(head, random.normal(size=head.size).astype(np.float32)),
        "optimizer.0": random.normal(size=(3, 2)).astype(np.float32),
        "steps": np.array(7, np.int64),
    }


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    assert found["own"].layout == expected["own"].layout
    np.testing.assert_array_equal(found["own"].vector, expected["own"].vector)
    for name in ("optimizer.0", "steps"):
        assert (found[name].dtype, found[name].shape) == (expected[name].dtype, expected[name].shape)
        np.testing.assert_array_equal(found[name], expected[name])


def test_a_state_comes_back_as_it_was(tmp_path, momentum, state):
    store = DeviceStore(tmp_path, momentum)
    store.save(1234, 5, state)
    assert_same(store.load(1234, 5), state)
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")] == ["001/1234.5.safetensors"]


def test_a_device_without_a_state_has_an_empty_one(tmp_path, momentum):
    assert DeviceStore(tmp_path, momentum).load(3, 0) == {}


def test_a_round_writes_beside_earlier_ones_until_they_are_dropped(tmp_path, momentum, state):
    store = DeviceStore(tmp_path, momentum)
    store.save(0, 1, {"steps": np.array(1)})
    store.save(0, 2, {"steps": np.array(2)})
    assert store.load(0, 1)["steps"] == 1
    store.drop(0, 1)
    store.drop(0, 1)  # a coordinator that died in between does it again
    assert store.load(0, 2)["steps"] == 2
    with pytest.raises(CheckpointError, match=r"0\.1\.safetensors: no such checkpoint"):
        store.load(0, 1)


def test_a_state_of_another_model_is_refused(tmp_path, momentum, adam, state):
    DeviceStore(tmp_path, momentum).save(0, 1, state)
    with pytest.raises(CheckpointError, match="of another model"):
        DeviceStore(tmp_path, adam).load(0, 1)


def test_texts_are_kept_beside_a_state(tmp_path, momentum, state):
    write_state(tmp_path / "state", state, momentum, {"round": "4", "seed": "0"})
    found, texts = read_state(tmp_path / "state", momentum)
    assert_same(found, state)
    assert texts == {"round": "4", "seed": "0"}
