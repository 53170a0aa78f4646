"""The SavedModel that the converter reads."""

from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from odt_sim.export.emit.convert import drop_unused, merge_equal, write_converter_input
from odt_sim.export.trace.tracing import named


def test_equal_constants_and_reshaped_tensors_of_a_function_become_one() -> None:
    function = named(
        lambda x: {"y": tf.reshape(tf.reshape(x, [6]), [2, 3]) + tf.reshape(tf.reshape(x, [6]) * 2.0, [2, 3])},
        [tf.TensorSpec([2, 3], name="x")],
    ).function_def

    def count(kind: str) -> int:
        return sum(node.op == kind for node in function.node_def)

    assert (count("Const"), count("Reshape")) == (5, 4)
    merge_equal(function)
    assert (count("Const"), count("Reshape")) == (3, 3)
    names = {node.name for node in function.node_def} | {"x"}
    assert {source.partition(":")[0] for node in function.node_def for source in node.input} <= names


def test_only_what_outputs_and_writes_need_is_kept() -> None:
    total = tf.Variable([1.0, 2.0])

    def change(x: tf.Tensor) -> dict[str, tf.Tensor]:
        tf.exp(x)
        total.assign(tf.sin(x))
        return {"y": tf.cos(x)}

    function = named(change, [tf.TensorSpec([2], name="x")]).function_def
    assert "Exp" in {node.op for node in function.node_def}
    drop_unused(function)
    kinds = {node.op for node in function.node_def}
    assert {"AssignVariableOp", "Cos", "Sin"} <= kinds
    assert "Exp" not in kinds


def test_signatures_read_and_write_the_variables_that_they_share(tmp_path: Path) -> None:
    total = tf.Variable([1.0, 2.0], name="a0")

    def add(b: tf.Tensor, a: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"sum": total.assign_add(a - b), "a": a}

    functions = {
        "add": named(add, [tf.TensorSpec([2], name=name) for name in "ab"]),
        "read": named(lambda: {"value": tf.identity(total)}, []),
    }
    write_converter_input([total], functions, tmp_path)
    total.assign([0.0, 0.0])
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        loaded = tf.compat.v1.saved_model.load(session, ["serve"], str(tmp_path)).signature_def

        def call(key: str, **values: list[float]) -> dict[str, np.ndarray]:
            inputs = {loaded[key].inputs[name].name: value for name, value in values.items()}
            return session.run({name: own.name for name, own in loaded[key].outputs.items()}, inputs)

        assert call("read")["value"].tolist() == [1, 2]
        added = call("add", a=[5.0, 6.0], b=[1.0, 1.0])
        assert (added["a"].tolist(), added["sum"].tolist()) == ([5, 6], [5, 7])
        assert call("read")["value"].tolist() == [5, 7]


def test_signatures_take_all_variables_and_compute_as_before(tmp_path: Path) -> None:
    weight, slot = tf.Variable([1.0, 2.0], name="a0"), tf.Variable([3.0], name="s0")
    functions = {
        "both": named(lambda: {"sum": weight + slot}, []),
        "one": named(lambda: {"slot": tf.identity(slot)}, []),
        "none": named(lambda x: {"double": 2.0 * x}, [tf.TensorSpec([1], name="x")]),
    }
    write_converter_input([weight, slot], functions, tmp_path)
    saved = SavedModel.FromString((tmp_path / "saved_model.pb").read_bytes())
    calls = [node for node in saved.meta_graphs[0].graph_def.node if node.op == "StatefulPartitionedCall"]
    assert [sorted(call.input) for call in calls] == [["a0", "s0"], ["a0", "s0"], ["a0", "none_x", "s0"]]
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        loaded = tf.compat.v1.saved_model.load(session, ["serve"], str(tmp_path)).signature_def
        assert session.run(loaded["both"].outputs["sum"].name).tolist() == [4, 5]
        assert session.run(loaded["one"].outputs["slot"].name).tolist() == [3]
        x = {loaded["none"].inputs["x"].name: [5.0]}
        assert session.run(loaded["none"].outputs["double"].name, x).tolist() == [10]
