"""Trained weights as the initial values of a file's variables."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edits import entry

from odt_sim import TrainableModel
from odt_sim.device.runtime import Runtime
from odt_sim.errors import ModelError
from odt_sim.model.editing import initial_weights
from odt_sim.model.editing.initial_weights import with_initial_weights
from odt_sim.model.weights import Weights


def inputs(model: TrainableModel, name: str) -> dict[str, Any]:
    random = np.random.default_rng(1)
    shapes = {
        tensor.name: [model.batch_size if size < 0 else size for size in tensor.shape]
        for tensor in model.signatures[name].inputs.values()
    }
    return {
        key: (random.random(shape) if np.issubdtype(np.dtype(tensor.dtype), np.floating) else np.ones(shape)).astype(
            tensor.dtype
        )
        for (key, shape), tensor in zip(shapes.items(), model.signatures[name].inputs.values(), strict=True)
    }


def check_written(model: TrainableModel) -> None:
    """Compare a fresh interpreter of the new file with one of the old file after a restore of the weights."""
    expected = Runtime(model)
    noise = np.random.default_rng(0).normal(0, 0.01, expected.initial.vector.size)
    weights = Weights(model.layout, (expected.initial.vector + noise).astype(np.float32))
    written = TrainableModel.from_content(
        with_initial_weights(model.content, weights), loss=model.loss, from_logits=model.from_logits
    )
    found = Runtime(written)
    assert found.initial.vector.tobytes() == weights.vector.tobytes()
    assert [slot.tobytes() for slot in found.initial_slots] == [slot.tobytes() for slot in expected.initial_slots]
    expected.write(weights)
    for name in ("infer", "train", "parameters"):
        given = inputs(model, name)
        one, other = expected.call(name, **given), found.call(name, **given)
        assert {key: array.tobytes() for key, array in one.items()} == {
            key: array.tobytes() for key, array in other.items()
        }


@pytest.mark.parametrize("name", ["momentum", "adam", "dropout", "grouped", "frozen", "any_rows"])
def test_interpreter_of_the_new_file_starts_with_the_weights(name: str, request: pytest.FixtureRequest) -> None:
    check_written(request.getfixturevalue(name))


def test_file_without_a_manifest_is_written(foreign: Path) -> None:
    check_written(TrainableModel.load(foreign / "plain.tflite", loss="sparse_categorical_crossentropy"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["character_lstm", "linear", "resnet8", "transformer_encoder"])
def test_zoo_model_is_written(name: str, configured: Any) -> None:
    check_written(configured(name))


@pytest.mark.slow
def test_zoo_model_of_many_layers_is_written(of_small_images: Callable[[str], Path]) -> None:
    check_written(TrainableModel.load(of_small_images("mobilenet")))


def test_manifest_stays(momentum: TrainableModel) -> None:
    content = with_initial_weights(momentum.content, Runtime(momentum).initial)
    assert TrainableModel.from_content(content).manifest == momentum.manifest


def test_files_of_one_model_share_only_its_ops(momentum: TrainableModel, adam: TrainableModel) -> None:
    """A file does not depend on files written before."""
    cases = [(model, k * Runtime(model).initial) for model in (momentum, adam) for k in (1, 2)]
    one_by_one = []
    for model, weights in cases:
        initial_weights._form.cache_clear()
        one_by_one.append(with_initial_weights(model.content, weights))
    assert [with_initial_weights(model.content, weights) for model, weights in cases] == one_by_one
    assert len(set(one_by_one)) == len(cases)


def test_weights_outside_initialized_variables_are_refused(momentum: TrainableModel, edited: Any) -> None:
    def swap(model: Any) -> None:
        a0, a1 = (entry(model, "parameters", "outputs", name) for name in ("a0", "a1"))
        a0.tensorIndex = model.subgraphs[0].inputs[0]
        a1.tensorIndex = model.subgraphs[0].inputs[0]

    with pytest.raises(ModelError, match=r"^mine: cannot store trained weights; expected 'parameters' to return init"):
        with_initial_weights(edited(momentum.content, swap), Runtime(momentum).initial, "mine")
