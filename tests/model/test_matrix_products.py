"""Products without axes of size 1 around matrices."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from edits import signature

from odt_sim import TrainableModel
from odt_sim.model.editing import OPS, kind_of, operators_of, packed, unpacked
from odt_sim.model.matrix_products import flatten_products


def flattened(content: bytes, key: str) -> Any:
    """Return an unpacked file with flat products in a signature, and the signature's subgraph."""
    file = unpacked(content)
    subgraph = file.subgraphs[signature(file, key).subgraphIndex]
    flatten_products(file, subgraph)
    return file, subgraph


def ranks(file: Any, subgraph: Any) -> Counter[int]:
    """Count the products by the rank of their result."""
    products = operators_of(file, subgraph, OPS.BATCH_MATMUL)
    return Counter(len(subgraph.tensors[int(product.outputs[0])].shape) for product in products)


@pytest.mark.parametrize("name", ["softmax", "small_mlp", "momentum", "digits_cnn"])
def test_a_step_computes_the_same_bits(name: str, request: pytest.FixtureRequest) -> None:
    model: TrainableModel = request.getfixturevalue(name)
    file, subgraph = flattened(model.content, "train")
    before = unpacked(model.content)
    assert ranks(file, subgraph)[2] > 0
    assert len(subgraph.operators) < len(before.subgraphs[signature(before, "train").subgraphIndex].operators)
    random, rows = np.random.default_rng(0), model.signatures["train"].inputs["x"].shape
    x, y = random.random(rows, np.float32), random.integers(0, 3, rows[0]).astype(np.int32)
    results = []
    for content in (model.content, packed(file)):
        interpreter = Interpreter(model_content=content, num_threads=1)
        train = interpreter.get_signature_runner("train")
        given = {"x": x, "y": y, "learning_rate": np.float32(0.1), "sample_weight": np.ones(len(x), np.float32)}
        losses = [train(**{key: given[key] for key in train.get_input_details()})["loss"] for _ in range(3)]
        results.append([*losses, *interpreter.get_signature_runner("parameters")().values()])
    for own, same in zip(*results, strict=True):
        np.testing.assert_array_equal(own, same)


def test_no_reshape_around_a_layer_is_left(small_mlp: TrainableModel) -> None:
    file, subgraph = flattened(small_mlp.content, "infer")
    kinds = [kind_of(file, op) for op in subgraph.operators]
    made = {int(i): kind for op, kind in zip(subgraph.operators, kinds, strict=True) for i in op.outputs}
    assert ranks(file, subgraph).keys() == {2}
    factors = [made.get(int(i)) for op in operators_of(file, subgraph, OPS.BATCH_MATMUL) for i in op.inputs]
    assert factors.count(OPS.RESHAPE) <= 1  # of an image to a row


@pytest.mark.parametrize("change", ["output", "open size"])
def test_a_product_stays_if_its_own_result_is_needed(change: str, small_mlp: TrainableModel) -> None:
    file = unpacked(small_mlp.content)
    subgraph = file.subgraphs[signature(file, "infer").subgraphIndex]
    result = int(operators_of(file, subgraph, OPS.BATCH_MATMUL)[0].outputs[0])
    if change == "output":
        subgraph.outputs = np.array([*subgraph.outputs, result])
    else:
        subgraph.tensors[result].shapeSignature = np.array([1, -1, subgraph.tensors[result].shape[-1]])
    products = ranks(file, subgraph)[3]
    flatten_products(file, subgraph)
    assert ranks(file, subgraph) == {2: products - 1, 3: 1}
