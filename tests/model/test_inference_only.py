"""Inference-only files, compared with the trainable files from which they were made."""

from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from edits import signature

from odt_sim import TrainableModel
from odt_sim.errors import ModelError
from odt_sim.model.editing.fully_connected import with_fully_connected
from odt_sim.model.editing.inference_only import inference_only, with_half_floats
from odt_sim.model.editing.tree import packed, unpacked
from odt_sim.model.reading import flatbuffer


def x_of(model: TrainableModel) -> Any:
    declared = model.signatures["infer"].inputs["x"]
    shape = [model.batch_size if size < 0 else size for size in declared.shape]
    random = np.random.default_rng(0)
    if declared.dtype == "float32":
        return random.normal(size=shape).astype(np.float32)
    return random.integers(0, 10, shape).astype(declared.dtype)


def logits(content: bytes, model: TrainableModel) -> Any:
    infer = Interpreter(model_content=content, num_threads=1).get_signature_runner("infer")
    return infer(x=x_of(model))[model.output.name]


@pytest.mark.parametrize("name", ["softmax", "momentum", "grouped", "dropout", "any_rows"])
def test_outputs_are_those_of_the_trainable_file(name: str, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(name)
    content = inference_only(model.content, "mine")
    found = flatbuffer.read(content, "mine")
    assert found.signatures == {"infer": model.signatures["infer"]}
    assert not {"READ_VARIABLE", "VAR_HANDLE", "CALL_ONCE"} & found.operators["infer"].keys()
    assert found.metadata == {}
    assert len(content) < len(model.content)
    assert logits(content, model).tobytes() == logits(model.content, model).tobytes()


def test_convolutions_are_those_of_tflite(digits_cnn: TrainableModel) -> None:
    content = inference_only(digits_cnn.content, "mine")
    found = flatbuffer.read(content, "mine")
    assert found.signatures == {"infer": digits_cnn.signatures["infer"]}
    assert found.operators["infer"] == {"CONV_2D": 2, "MAX_POOL_2D": 2, "RESHAPE": 1, "FULLY_CONNECTED": 2}
    np.testing.assert_allclose(
        logits(content, digits_cnn), logits(digits_cnn.content, digits_cnn), rtol=1e-5, atol=1e-6
    )


def test_constants_are_computed_once(grouped: TrainableModel) -> None:
    """The scales of a normalization layer depend only on weights, so RSQRT is computed when the file is written."""
    assert "RSQRT" in grouped.operators["infer"]
    operators = flatbuffer.read(inference_only(grouped.content, "mine"), "mine").operators["infer"]
    assert not {"RSQRT", "SUB"} & operators.keys()


@pytest.mark.parametrize("name", ["softmax", "digits_cnn", "dropout"])
def test_float16_constants_take_half_the_room(name: str, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(name)
    content = inference_only(model.content, "mine")
    half = with_half_floats(content)
    weights = 2 * sum(parameter_size(model))
    assert len(half) < len(content) - 0.7 * weights + 2000
    np.testing.assert_allclose(logits(half, model), logits(content, model), atol=2e-3)


def parameter_size(model: TrainableModel) -> list[int]:
    return [int(np.prod(parameter.shape)) for parameter in model.parameters]


def test_values_beyond_float16_stay_float32(momentum: TrainableModel) -> None:
    model = unpacked(inference_only(momentum.content, "mine"))
    largest = max(model.buffers, key=lambda buffer: 0 if buffer.data is None else len(buffer.data))
    largest.data = np.frombuffer((np.frombuffer(bytes(largest.data), np.float32) + 1e5).tobytes(), np.uint8)
    content = packed(model)
    expected = logits(content, momentum)
    np.testing.assert_allclose(logits(with_half_floats(content), momentum), expected, rtol=1e-3)
    assert abs(expected).max() > 65504


@pytest.mark.parametrize("name", ["softmax", "dropout", "any_rows"])
def test_products_with_constants_become_fully_connected(name: str, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(name)
    content = inference_only(model.content, "mine")
    rewritten = with_fully_connected(content)
    before, after = (flatbuffer.read(each, "mine").operators["infer"] for each in (content, rewritten))
    left = 2 if name == "dropout" else 0  # products of activations
    assert (after.get("BATCH_MATMUL", 0), after["FULLY_CONNECTED"]) == (left, before["BATCH_MATMUL"] - left)
    np.testing.assert_allclose(logits(rewritten, model), logits(content, model), rtol=1e-5, atol=1e-6)


def test_variable_without_initial_value_is_refused(softmax: TrainableModel) -> None:
    model = unpacked(softmax.content)
    kept = model.subgraphs[signature(model, "infer").subgraphIndex]
    for subgraph in model.subgraphs:
        if subgraph is not kept and not len(subgraph.inputs) and not len(subgraph.outputs):
            subgraph.operators = []
    with pytest.raises(
        ModelError, match=r"^mine: cannot be reduced to inference, because 'infer' reads the variable a0"
    ):
        inference_only(packed(model), "mine")
