"""Several steps of models of `conf/model` in Chromium equal Python; `test_coverage.py` runs two steps of the others."""

from typing import Any

import numpy as np
import pytest
from recording import Array, Recording

from odt_sim import TrainableModel
from odt_sim.cli.hydra.build import model_file
from odt_sim.cli.hydra.overrides import composed

CASES = {
    **{name: [f"model={name}"] for name in ("digits_cnn", "digits_mlp", "softmax")},
    "resnet8": ["model=resnet8", "model.build.input_shape=[8,8,3]"],
    **{name: ["model=digits_mlp", f"model.optimizer.name={name}"] for name in ("Adam", "Ftrl")},
    "mobilenet_transfer": [
        "model=mobilenet_transfer",
        "model.build.input_shape=[32,32,3]",
        "model.build.weights=null",
    ],
}
CANCELLING = {"Ftrl": 3e-6, "mobilenet_transfer": 3e-6}
"""Tolerances for numbers that nearly cancel: Ftrl's weights are differences, an untrained backbone's features flat."""


def loaded(*overrides: str) -> TrainableModel:
    return TrainableModel.load(model_file(composed(overrides)))


def assert_close(differences: dict[str, float], tolerance: float = 1e-6) -> None:
    wrong = {name: difference for name, difference in differences.items() if not difference <= tolerance}
    assert not wrong


@pytest.mark.parametrize("name", CASES)
def test_six_steps_agree(harness: Any, name: str) -> None:
    recording = Recording(loaded(*CASES[name]))
    before = recording.state()
    losses = [recording.train() for _ in range(6)]
    assert len(set(losses)) == 6
    recording.state()
    recording.infer()
    recording.restore(before)
    recording.state()
    recording.train()
    differences = recording.differences(harness)
    assert differences["train.loss"] <= 1e-6
    assert_close(differences, CANCELLING.get(name, 1e-6))


def test_adam_of_the_transformer_agrees_except_where_gradients_are_rounding(harness: Any) -> None:
    """The gradient of a key's bias is 0, as softmax ignores what all keys share; Adam scales its rounding to full steps."""
    model = loaded("model=transformer_encoder")
    keys = [i for i, parameter in enumerate(model.parameters) if parameter.name.endswith("key/bias")]
    ignored = {f"parameters.a{i}" for i in keys} | {f"optimizer_state.s{2 * i + k}" for i in keys for k in (1, 2)}
    assert len(ignored) == 6
    recording = Recording(model)
    for _ in range(6):
        recording.train()
    recording.state()
    differences = recording.differences(harness)
    assert differences["train.loss"] <= 1e-6
    assert_close({name: value for name, value in differences.items() if name not in ignored}, 1e-5)


def test_steps_of_a_network_that_magnifies_rounding_agree(harness: Any) -> None:
    """Each step starts from the same state; a step in which rounding flips a ReLU may differ by more.

    Depthwise convolutions and BatchNormalization, as in a MobileNet, whose other ops `mobilenet_transfer` has.
    """
    small = ["model.build.input_shape=[16,10,1]", "model.build.filters=8", "model.build.blocks=2", "model.batch_size=4"]
    recording = Recording(loaded("model=ds_cnn", *small))
    states = [recording.state()]
    for _ in range(3):
        recording.train()
        states.append(recording.state())
        recording.restore(states[-1])
    replayed = list(zip(recording.calls, recording.replayed(harness), strict=True))
    found = [vector(outputs) for call, outputs in replayed if call.signature == "parameters"]
    vectors = [vector(state["parameters"]) for state in states]
    steps = zip(vectors, vectors[1:], found[1:], strict=False)
    assert min(np.linalg.norm(new - after) / np.linalg.norm(after - before) for before, after, new in steps) < 1e-4
    losses = [(call.outputs["loss"], outputs["loss"]) for call, outputs in replayed if call.signature == "train"]
    np.testing.assert_allclose(*zip(*losses, strict=True), rtol=1e-5)


def vector(tensors: dict[str, Array]) -> Array:
    return np.concatenate([tensors[f"a{i}"].ravel().astype(float) for i in range(len(tensors))])


def test_optional_signatures_agree(harness: Any, grouped: TrainableModel) -> None:
    recording = Recording(grouped)
    offset = {t.name: np.full(t.shape, 0.01, np.float32) for t in recording.inputs("set_gradient_offset")}
    recording.call("set_gradient_offset", **offset)
    steps = sorted(name for name in grouped.signatures if name.startswith("train") or name == "head_train")
    assert {"train", "train_head", "train_body", "head_train"} <= set(steps)
    for name in steps:
        recording.train(signature=name)
        recording.state()
    for name in ("infer", "embed", "head_infer"):
        recording.infer(name)
    assert_close(recording.differences(harness))


def test_masks_of_dropout_agree(harness: Any, dropout: TrainableModel) -> None:
    recording = Recording(dropout)
    for _ in range(4):
        recording.train()
        recording.state()
    differences = recording.differences(harness)
    assert all(differences[f"optimizer_state.s{i}"] == 0 for i in dropout.random_states)
    assert_close(differences)


def test_file_of_any_number_of_rows_is_refused(harness: Any, any_rows: TrainableModel) -> None:
    recording = Recording(any_rows)
    recording.infer()
    with pytest.raises(
        Exception, match=r"takes any number of rows, which LiteRT\.js cannot run; export it with a batch_size"
    ):
        recording.replayed(harness)
