"""Large tables, such as embeddings of many items: gradients by rows, and momenta of all rows."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
from ai_edge_litert.interpreter import Interpreter
from keras import layers, optimizers

from odt_sim.export import export_model
from odt_sim.model.reading.graph_reader import read_graph


def words() -> Any:
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [layers.Input((4,), dtype="int32"), layers.Embedding(7, 3), layers.Flatten(), layers.Dense(5)]
    )


def table(rows: int) -> Any:
    """Return a model that answers with a row of one number, of which row i begins as i."""
    begin = keras.initializers.Constant(np.arange(float(rows))[:, None])
    return keras.Sequential([layers.Input((1,), dtype="int32"), layers.Embedding(rows, 1, begin), layers.Flatten()])


def test_rows_outside_the_batch_follow_their_momentum(tmp_path: Path) -> None:
    momentum = optimizers.SGD(momentum=0.5)
    path = export_model(table(5), tmp_path / "m.tflite", loss="mean_squared_error", optimizer=momentum, batch_size=4)
    interpreter = Interpreter(str(path))
    given = {"y": np.zeros((4, 1), np.float32), "sample_weight": np.ones(4, np.float32), "learning_rate": np.float32(1)}
    found = []
    for rows in ([1, 1, 3, 3], [0, 0, 0, 0]):
        interpreter.get_signature_runner("train")(x=np.array(rows, np.int32)[:, None], **given)
        found.append(interpreter.get_signature_runner("parameters")()["a0"][:, 0].tolist())
    # The gradient of each of two places is 2 w / 4, so that a row steps to 0; half of the step follows.
    assert found == [[0, 0, 2, 0, 4], [0, -0.5, 2, -1.5, 4]]
    assert interpreter.get_signature_runner("optimizer_state")()["s0"][:, 0].tolist() == [0, -0.5, 0, -1.5, 0]


def test_gradient_of_an_embedding_has_a_fixed_shape(tmp_path: Path) -> None:
    path = export_model(words(), tmp_path / "m.tflite", loss="sparse_categorical_crossentropy", optimizer="adagrad")
    graph = read_graph(path.read_bytes(), str(path))
    kinds = {op.kind for op in graph.subgraph("train").ops}
    assert kinds & {"SCATTER_ND", "UNSORTED_SEGMENT_SUM"} == {"SCATTER_ND"}


def test_divisor_of_a_sparse_gradient_is_computed_for_its_rows_alone(tmp_path: Path) -> None:
    path = export_model(words(), tmp_path / "m.tflite", loss="sparse_categorical_crossentropy", optimizer="rmsprop")
    step = read_graph(path.read_bytes(), str(path)).subgraph("train")
    roots = [step.tensors[op.outputs[0]].shape for op in step.ops if op.kind in ("SQRT", "RSQRT")]
    assert (7, 3) not in roots
    assert len(roots) == 3
