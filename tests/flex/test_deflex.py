"""A file with Flex ops in TensorFlow's interpreter trains like the rewritten file on LiteRT."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from dialects import FLEX, generated
from dialects.classic import NETWORKS, Classic, batches, classic
from flex_model import RATE, FlexModel, export, small_cnn
from flex_model import batches as flex_batches
from numpy.typing import NDArray

from odt_sim.export import deflex
from odt_sim.model.reading.graph_reader import read_graph

STEPS = 10


def weights(model: Classic, interpreter: FlexModel, folder: Path) -> list[NDArray[Any]]:
    """Return the float weights of the original from its checkpoint."""
    interpreter.save(folder / "checkpoint")
    reader = tf.train.load_checkpoint(str(folder / "checkpoint"))
    variables = [v for v in [*model.trained, *model.others] if v.dtype == tf.float32]
    return [reader.get_tensor(v.name.partition(":")[0]) for v in variables]


@pytest.mark.parametrize(("network", "rows"), [*((name, 4) for name in NETWORKS), ("lstm", None)])
def test_ten_steps_agree_with_the_original(network: str, rows: int | None, tmp_path: Path) -> None:
    model = classic(network)
    source = model.write(tmp_path / "classic.tflite", rows)
    path = deflex(source, tmp_path / "builtin.tflite")
    graph = read_graph(path.read_bytes(), network)
    assert not [op.kind for subgraph in graph.subgraphs for op in subgraph.ops if op.flex]
    original, lite = FlexModel(source), Interpreter(str(path), num_threads=1).get_signature_runner
    before = weights(model, original, tmp_path)
    for x, y in batches(model, rows or 4, STEPS):
        assert lite("train")(x=x, y=y)["loss"] == pytest.approx(original.call("train", x=x, y=y)["loss"], rel=1e-5)
    after, found = weights(model, original, tmp_path), lite("parameters")()
    moved = max(np.abs(new - old).max() for new, old in zip(after, before, strict=True))
    assert moved > 0.01
    for i, expected in enumerate(after):
        np.testing.assert_allclose(found[f"a{i}"], expected, rtol=0, atol=1e-5 * moved, err_msg=f"a{i}")
    x, _ = batches(model, rows or 4, 1)[0]
    np.testing.assert_allclose(lite("infer")(x=x)["logits"], original.call("infer", x=x)["logits"], atol=1e-5)


@pytest.mark.parametrize("name", FLEX)
def test_dialect_trains_as_before_without_flex(name: str, tmp_path: Path) -> None:
    dialect = generated(name)
    path = deflex(dialect.path, tmp_path / "builtin.tflite")
    original, lite = FlexModel(dialect.path), Interpreter(str(path), num_threads=1).get_signature_runner
    own = dialect.signatures["train"]
    for seed in range(STEPS):
        x, y = dialect.batch(seed)
        batch = {own["x"]: x, own["y"]: y}
        expected = original.call(own["name"], **batch)[own["loss"]]
        assert lite(own["name"])(**batch)[own["loss"]] == pytest.approx(expected, rel=1e-5)


def test_own_flavour_becomes_the_builtin_one(tmp_path: Path) -> None:
    source = export(small_cnn(), tmp_path, optimizer=keras.optimizers.Adam(), flavour="flex")
    path = deflex(source, tmp_path / "builtin.tflite")
    original, lite = FlexModel(source), Interpreter(str(path), num_threads=1).get_signature_runner
    for batch in flex_batches(small_cnn(), STEPS):  # Dropout draws the same masks
        expected = original.train(batch)["loss"]
        assert lite("train")(**batch, learning_rate=RATE)["loss"] == pytest.approx(expected, rel=1e-5)
    before, found = small_cnn().get_weights(), lite("parameters")()
    moved = max(np.abs(new - old).max() for new, old in zip(original.parameters(), before, strict=True))
    for i, expected in enumerate(original.parameters()):
        np.testing.assert_allclose(found[f"a{i}"], expected, rtol=0, atol=1e-5 * moved, err_msg=f"a{i}")
