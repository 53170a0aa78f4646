"""Products with few columns as FULLY_CONNECTED, for which LiteRT's compiled model gives the bits of the interpreter."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from edits import entry, signature

from odt_sim import Device, TrainableModel
from odt_sim.device import runtime_pool
from odt_sim.device.engines import LITERT, start_with_variable_weights
from odt_sim.device.engines.compiled import CompiledEngine
from odt_sim.device.engines.interpreter import InterpreterEngine
from odt_sim.device.runtime_pool import RuntimePool
from odt_sim.errors import ModelError
from odt_sim.model.editing import OPS, add_tensor, opcode, operators_of, packed, rearranging, unpacked
from odt_sim.model.narrow_products import narrow_products

PLACES = 5


@pytest.fixture(scope="module")
def recurrent(configured: Callable[..., TrainableModel]) -> TrainableModel:
    """An LSTM of 32 units on 5 of 20 characters, [16, 5] to 20 logits for each, whose examples are columns."""
    sizes = {"length": PLACES, "characters": 20, "units": 32}
    return configured("character_lstm", *(f"model.build.{name}={size}" for name, size in sizes.items()))


def batch(seed: int = 0, rows: int = 16) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    return tuple(random.integers(0, 20, (rows, PLACES)).astype(np.int32) for _ in "xy")


def test_steps_have_the_bits_of_the_interpreter(recurrent: TrainableModel) -> None:
    narrow = narrow_products(recurrent)
    assert narrow is not None
    engines = [LITERT(recurrent.content, "own"), start_with_variable_weights(narrow.content, "narrow")]
    for seed in range(3):
        x, y = batch(seed)
        given = {"x": x, "y": y, "learning_rate": np.float32(1.0), "sample_weight": np.ones(16, np.float32)}
        one, other = (engine.call("train", **given)["loss"] for engine in engines)
        np.testing.assert_array_equal(one, other)
    for key, inputs in (("parameters", {}), ("infer", {"x": batch()[0]})):
        one, other = (engine.call(key, **inputs) for engine in engines)
        for name, expected in one.items():
            np.testing.assert_array_equal(other[name], expected, err_msg=f"{key}, {name}")


def test_each_place_has_two_such_products(recurrent: TrainableModel) -> None:
    narrow = narrow_products(recurrent)
    assert narrow is not None
    assert narrow.layout == recurrent.layout
    file = unpacked(narrow.content)
    counts = {
        key: len(operators_of(file, file.subgraphs[signature(file, key).subgraphIndex], OPS.FULLY_CONNECTED))
        for key in ("train", "infer")
    }
    assert counts == {"train": 2 * PLACES, "infer": 0}


@pytest.mark.parametrize("name", ["softmax", "digits_cnn", "momentum"])
def test_file_without_them_stays(name: str, request: pytest.FixtureRequest) -> None:
    assert narrow_products(request.getfixturevalue(name)) is None


def test_product_that_adds_an_axis_stays(recurrent: TrainableModel) -> None:
    """FULLY_CONNECTED would return a matrix for a matrix."""
    file = unpacked(recurrent.content)
    train = file.subgraphs[signature(file, "train").subgraphIndex]
    product = operators_of(file, train, OPS.BATCH_MATMUL)[0]
    shape = list(train.tensors[product.inputs[0]].shape)[1:]
    matrix = add_tensor(train, "matrix", shape, schema.TensorType.FLOAT32)
    reshape = rearranging(file, train, product.inputs[0], shape, matrix, schema.ReshapeOptionsT())
    train.operators.insert(train.operators.index(product), reshape)
    product.inputs = np.array([matrix, product.inputs[1]], np.int32)
    narrow = narrow_products(TrainableModel.from_content(packed(file)))
    assert narrow is not None
    file = unpacked(narrow.content)
    train = file.subgraphs[signature(file, "train").subgraphIndex]
    assert len(operators_of(file, train, OPS.FULLY_CONNECTED)) == 2 * PLACES - 1


def test_devices_use_them_only_with_avx512(recurrent: TrainableModel, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = batch(rows=40)  # the last batch is padded
    weights = []
    for has, kind in ((True, CompiledEngine), (False, InterpreterEngine)):
        monkeypatch.setattr(runtime_pool, "has_avx512", lambda has=has: has)
        pool = RuntimePool(recurrent)
        assert isinstance(pool.first._engine, kind)
        device = Device(recurrent, (x, y), test=(x, y), pool=pool)
        losses = device.train(2)
        weights.append((losses, device.weights.vector, device.loss("test")))
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_interpreter_runs_a_file_that_takes_int64(recurrent: TrainableModel, monkeypatch: pytest.MonkeyPatch) -> None:
    file = unpacked(recurrent.content)
    train = file.subgraphs[signature(file, "train").subgraphIndex]
    y, cast, options = entry(file, "train", "inputs", "y"), schema.OperatorT(), schema.CastOptionsT()
    given = add_tensor(train, "y", [16, PLACES], schema.TensorType.INT64)
    options.inDataType, options.outDataType = schema.TensorType.INT64, schema.TensorType.INT32
    cast.opcodeIndex, cast.builtinOptions = opcode(file, OPS.CAST), options
    cast.builtinOptionsType = schema.BuiltinOptions.CastOptions
    cast.inputs, cast.outputs = np.array([given], np.int32), np.array([y.tensorIndex], np.int32)
    train.operators.insert(0, cast)
    train.inputs = np.where(train.inputs == y.tensorIndex, given, train.inputs)
    y.tensorIndex = given
    monkeypatch.setattr(runtime_pool, "has_avx512", lambda: True)
    one, other = (Device(model, batch()) for model in (recurrent, TrainableModel.from_content(packed(file))))
    np.testing.assert_array_equal(one.train(), other.train())


def test_file_is_made_once_for_a_process_and_its_forks(
    recurrent: TrainableModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_pool, "has_avx512", lambda: True)
    again = TrainableModel.load(recurrent.where)
    one, other = (RuntimePool(model).files()[1] for model in (recurrent, again))
    assert one is not None
    assert other is not None
    assert one.content is other.content


def test_interpreter_runs_what_the_compiled_model_refuses(
    recurrent: TrainableModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(content: bytes, where: str) -> Any:
        raise ModelError(f"{where}: another release")

    monkeypatch.setattr(runtime_pool, "has_avx512", lambda: True)
    monkeypatch.setattr(runtime_pool, "start_with_variable_weights", refuses)
    assert isinstance(RuntimePool(recurrent).first._engine, InterpreterEngine)
