"""Large tables, such as embeddings of many items: gradients by rows, and slots in blocks of rows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from keras import layers, optimizers

from odt_sim.export import blocked_slots, export_model
from odt_sim.model.graph_reader import read_graph
from odt_sim.model.head_file import head_file
from odt_sim.model.trainable import TrainableModel

Patch = pytest.MonkeyPatch

BLOCKED: dict[str, Callable[[], Any]] = {
    "AMSGrad": lambda: optimizers.Adam(amsgrad=True, weight_decay=0.1),
    "Nesterov": lambda: optimizers.SGD(momentum=0.9, nesterov=True),
    "Nadam": lambda: optimizers.Nadam(global_clipnorm=0.5),
}


def keep_in_blocks(monkeypatch: Patch, block: int = 30) -> None:
    """Keep every matrix of several rows in blocks of so many bytes."""
    monkeypatch.setattr(blocked_slots, "SMALLEST", 1)
    monkeypatch.setattr(blocked_slots, "BLOCK", block)


def words() -> Any:
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [layers.Input((4,), dtype="int32"), layers.Embedding(7, 3), layers.Flatten(), layers.Dense(5)]
    )


def table(rows: int) -> Any:
    """Return a model that answers with a row of one number, of which row i begins as i."""
    begin = keras.initializers.Constant(np.arange(float(rows))[:, None])
    return keras.Sequential([layers.Input((1,), dtype="int32"), layers.Embedding(rows, 1, begin), layers.Flatten()])


def variables_in(path: Path) -> set[str]:
    graph = read_graph(path.read_bytes(), str(path))
    return {handle.name for own in graph.handles for handle in own.values()}


@pytest.mark.parametrize("in_blocks", [False, True])
def test_rows_outside_the_batch_follow_their_momentum(in_blocks: bool, tmp_path: Path, monkeypatch: Patch) -> None:
    if in_blocks:
        keep_in_blocks(monkeypatch, block=8)
    momentum = optimizers.SGD(momentum=0.5)
    path = export_model(table(5), tmp_path / "m.tflite", loss="mean_squared_error", optimizer=momentum, batch_size=4)
    assert ("s0.1" in variables_in(path)) == in_blocks
    interpreter = Interpreter(str(path))
    given = {"y": np.zeros((4, 1), np.float32), "sample_weight": np.ones(4, np.float32), "learning_rate": np.float32(1)}
    found = []
    for rows in ([1, 1, 3, 3], [0, 0, 0, 0]):
        interpreter.get_signature_runner("train")(x=np.array(rows, np.int32)[:, None], **given)
        found.append(interpreter.get_signature_runner("parameters")()["a0"][:, 0].tolist())
    # The gradient of each of two places is 2 w / 4, so that a row steps to 0; half of the step follows.
    assert found == [[0, 0, 2, 0, 4], [0, -0.5, 2, -1.5, 4]]
    assert interpreter.get_signature_runner("optimizer_state")()["s0"][:, 0].tolist() == [0, -0.5, 0, -1.5, 0]


@pytest.mark.slow
@pytest.mark.parametrize("name", BLOCKED)
def test_slots_in_blocks_train_as_keras_does(name: str, twins: Any, monkeypatch: Patch) -> None:
    keep_in_blocks(monkeypatch)
    pair = twins(words(), optimizer=BLOCKED[name]())
    pair.agree()
    pair.restore()
    pair.agree()


@pytest.mark.slow
def test_blocks_change_no_bit(tmp_path: Path, monkeypatch: Patch) -> None:
    options = {"optimizer": "adam", "gradient_offset": True, "train_groups": ["head"], "batch_size": None}
    paths = []
    for name in ("whole", "blocks"):
        paths.append(export_model(words(), tmp_path / name, loss="sparse_categorical_crossentropy", **options))
        keep_in_blocks(monkeypatch)
    added = variables_in(paths[1]) - variables_in(paths[0])
    assert {"s2.0", "s2.1"} <= added
    random, interpreters = np.random.default_rng(2), [Interpreter(str(path)) for path in paths]
    for rows, signature in ((6, "train"), (4, "train_head"), (6, "train")):
        x, y = random.integers(0, 7, (rows, 4)).astype(np.int32), random.integers(0, 5, rows).astype(np.int32)
        numbers = {"sample_weight": np.ones(rows, np.float32), "learning_rate": np.float32(0.1), "mu": np.float32(0.3)}
        for own in interpreters:
            own.get_signature_runner(signature)(x=x, y=y, **numbers)
    for signature in ("parameters", "optimizer_state"):
        whole, blocks = (own.get_signature_runner(signature)() for own in interpreters)
        assert {key: value.tobytes() for key, value in blocks.items()} == {k: v.tobytes() for k, v in whole.items()}


def test_slot_that_rows_are_gathered_from_stays_whole(tmp_path: Path, monkeypatch: Patch) -> None:
    keep_in_blocks(monkeypatch)
    path = export_model(words(), tmp_path / "m.tflite", loss="sparse_categorical_crossentropy", optimizer="adagrad")
    names = variables_in(path)
    assert {"s0", "s1.0"} <= names


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


def test_slots_stay_whole_beside_a_head_that_trains_alone(tmp_path: Path, monkeypatch: Patch) -> None:
    keep_in_blocks(monkeypatch)
    options = {"optimizer": optimizers.SGD(momentum=0.9), "embed": True}
    path = export_model(words(), tmp_path / "m.tflite", loss="sparse_categorical_crossentropy", **options)
    assert head_file(TrainableModel.load(path)) is not None
    assert {"s0", "s1"} <= variables_in(path)
