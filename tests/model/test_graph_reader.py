"""The typed graph of whole, foreign and hostile `.tflite` files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from odt_sim.errors import ModelError
from odt_sim.model.reading import node_def
from odt_sim.model.reading.graph import Graph
from odt_sim.model.reading.graph_reader import read_graph

Edit = Callable[[bytes, Callable[[Any], None]], bytes]


@pytest.fixture(scope="module")
def flex(foreign: Path) -> Graph:
    return read_graph((foreign / "flex.tflite").read_bytes(), "flex")


def test_variables_have_shapes_values_and_users(plain: bytes) -> None:
    graph = read_graph(plain, "plain")
    kernel, bias = sorted(graph.variables.values(), key=lambda v: -v.size)
    assert (kernel.shape, kernel.dtype, bias.shape) == ((6, 3), "float32", (3,))
    assert kernel.read_by == ("infer", "parameters", "train")
    assert kernel.assigned_by == ("restore", "train")
    assert kernel.initialized
    expected = np.random.default_rng(0).normal(0, 0.1, (6, 3)).astype(np.float32)
    np.testing.assert_array_equal(kernel.initial.value(), expected)


def test_signatures_name_tensors(plain: bytes) -> None:
    graph = read_graph(plain, "plain")
    entry = graph.signatures["train"]
    tensors = graph.subgraph("train").tensors
    assert {name: tensors[i].text for name, i in entry.inputs.items()} == {"x": "float32[4, 6]", "y": "int32[4]"}
    producer = graph.subgraph("train").producers[entry.outputs["loss"]]
    assert producer.outputs == (entry.outputs["loss"],)


def test_flex_op_keeps_its_node(flex: Graph) -> None:
    [op] = [op for op in flex.ops("train") if op.flex]
    assert node_def.texts(op.node_def)["op"] == "SoftplusGrad"
    assert (flex.flex_ops("train"), flex.flex_ops("infer")) == (("FlexSoftplusGrad",), ())


def test_file_without_signatures_has_one_entry_point(plain: bytes, edited: Edit) -> None:
    def keep_inference(model: Any) -> None:
        [infer] = [s for s in model.signatureDefs if s.signatureKey == b"infer"]
        model.subgraphs, model.signatureDefs = [model.subgraphs[infer.subgraphIndex]], []
        once = [i for i, code in enumerate(model.operatorCodes) if code.builtinCode == schema.BuiltinOperator.CALL_ONCE]
        graph = model.subgraphs[0]
        graph.operators = [op for op in graph.operators if op.opcodeIndex not in once]

    graph = read_graph(edited(plain, keep_inference), "main")
    [entry] = graph.signatures.values()
    assert (entry.name, entry.declared, len(entry.inputs), len(entry.outputs)) == ("main", False, 1, 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x08\x07\x12\x07pytorch\x1a\x052.1.0:\x01" * 9, "not a .tflite file"),  # ONNX
        (b"\x89HDF\r\n\x1a\n" + bytes(90), "found .*, an HDF5 file, such as a Keras .h5 model"),
        (b"PK\x03\x04" + bytes(90), "a zip archive, such as a .keras file"),
        (b"\x08\x01\x12\x80" + bytes(90), "a SavedModel's protocol buffer"),
        (np.random.default_rng(0).bytes(4000), "not a .tflite file"),
        (b"\x1c\0\0\0TFL3" + np.random.default_rng(0).bytes(4000), "damaged .tflite file"),
        (b"\xff\xff\xff\xffTFL3" + b"\xff" * 4000, "damaged .tflite file"),
        (b"\x08\0\0\0TFL3" + bytes(4000), None),
    ],
)
def test_other_bytes_are_refused_in_one_line(content: bytes, message: str | None) -> None:
    if message is None:
        assert read_graph(content, "empty").signatures == {}
        return
    with pytest.raises(ModelError, match=message) as caught:
        read_graph(content, "photo")
    assert "\n" not in str(caught.value)


def test_calls_in_a_circle_end(foreign: Path, edited: Edit) -> None:
    def call_itself(model: Any) -> None:
        for index, subgraph in enumerate(model.subgraphs):
            for operator in subgraph.operators:
                if operator.builtinOptionsType == schema.BuiltinOptions.WhileOptions:
                    operator.builtinOptions.bodySubgraphIndex = index

    graph = read_graph(edited((foreign / "hidden_loop.tflite").read_bytes(), call_itself), "circle")
    assert len(graph.variables) == 3
    assert {name: len(graph.reachable(entry.subgraph)) for name, entry in graph.signatures.items()}["train"] == 2


def test_declared_sizes_allocate_nothing(plain: bytes, edited: Edit) -> None:
    def grow(model: Any) -> None:
        for subgraph in model.subgraphs:
            for tensor in subgraph.tensors:
                tensor.shape = np.array([1 << 30, 1 << 20], np.int32)

    graph = read_graph(edited(plain, grow), "large")
    kernel = next(v for v in graph.variables.values() if v.initial)
    with pytest.raises(ModelError, match=r"expected a constant float32 \[1073741824, 1048576\], found \d+ bytes"):
        kernel.initial.value()
