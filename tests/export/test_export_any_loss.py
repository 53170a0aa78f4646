"""Every loss: all losses of Keras except Circle, and user functions of examples and of whole batches."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from keras import layers, losses, ops
from numpy.typing import NDArray

from odt_sim.export import export_model
from odt_sim.export.keras.losses import KINDS

BATCH, STEPS, RATE, WIDTH = 6, 3, np.float32(0.05), 3
Arrays = dict[str, NDArray[Any]]


def contrastive(y: Any, distance: Any) -> Any:
    return y * ops.square(distance) + (1.0 - y) * ops.square(ops.relu(1.0 - distance))


def triplet(y: Any, embedding: Any) -> Any:
    """Return the batch-hard triplet loss of each example."""
    label = ops.reshape(y, (-1,))
    distances = ops.sum(ops.square(embedding[:, None] - embedding[None]), -1)
    same = ops.cast(ops.equal(label[:, None], label[None]), "float32")
    return ops.relu(ops.max(distances * same, 1) - ops.min(distances + 1e3 * same, 1) + 1.0)


def supervised_contrastive(y: Any, embedding: Any) -> Any:
    label, z = ops.reshape(y, (-1,)), ops.normalize(embedding, axis=-1)
    same = ops.cast(ops.equal(label[:, None], label[None]), "float32")
    return -ops.sum(ops.log_softmax(2.0 * ops.matmul(z, ops.transpose(z)), -1) * same, -1)


def clip(y: Any, output: Any) -> Any:
    """Return the loss of an image and a text in each row, each of which has the row's number as its class."""
    logits = ops.matmul(output[:, :1], ops.transpose(output[:, 1:2]))
    number = ops.arange(ops.shape(logits)[0])
    ways = [losses.sparse_categorical_crossentropy(number, z, True) for z in (logits, ops.transpose(logits))]
    return (ways[0] + ways[1]) / 2.0


def nt_xent(y: Any, output: Any) -> Any:
    """Return the loss of SimCLR, with two views of each example in a row."""
    z = ops.normalize(ops.concatenate([output[:, :2], output[:, 1:]], 0), axis=-1)
    rows = ops.shape(output)[0]
    logits = 2.0 * ops.matmul(z, ops.transpose(z)) - 1e9 * ops.eye(2 * rows)
    label = ops.concatenate([ops.arange(rows) + rows, ops.arange(rows)], 0)
    return ops.mean(losses.sparse_categorical_crossentropy(label, logits, from_logits=True))


def negatives(y: Any, output: Any) -> Any:
    """Return the similarity of each row to the others, without itself, as in PyTorch."""
    rows = ops.shape(output)[0]
    others = tf.boolean_mask(ops.matmul(output, ops.transpose(output)), ~tf.eye(rows, dtype=tf.bool))
    return ops.logsumexp(ops.reshape(others, (rows, rows - 1)), -1) + ops.sum(output * ops.roll(output, 1, 0), -1)


def of_the_batch(y: Any, output: Any) -> Any:
    return ops.mean(ops.square(y - output))


PROBABILITIES = ("categorical_crossentropy", "categorical_focal_crossentropy", "kl_divergence")
CLASSES = ("sparse_categorical_crossentropy", "categorical_generalized_cross_entropy")
POSITIVE = ("poisson", "mean_squared_logarithmic_error", "mean_absolute_percentage_error")
IN_BATCH = {
    "triplet": triplet,
    "supervised_contrastive": supervised_contrastive,
    "clip": clip,
    "nt_xent": nt_xent,
    "negatives": negatives,
    "of_the_batch": of_the_batch,
}
ALONE: dict[str, Any] = {
    **{name: kind() for name, kind in KINDS.items() if name not in ("circle", "ctc")},
    "ignored": losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=1),
    "focal_of_logits": losses.BinaryFocalCrossentropy(from_logits=True, apply_class_balancing=True),
    "dice_of_each": losses.Dice(axis=(1,)),
    "summed": losses.MeanAbsoluteError(reduction="sum"),
    "weighted": losses.MeanSquaredError(reduction="mean_with_sample_weight"),
    "own": contrastive,
    "lambda": lambda y, output: ops.mean(ops.abs(y - output) ** 1.5, -1),
}


def activation(name: str) -> str | None:
    if name in (*PROBABILITIES, *CLASSES):
        return "softmax"
    if name in POSITIVE:
        return "softplus"
    return "sigmoid" if name.startswith(("binary", "dice", "tversky")) else None


def model_of(names: Mapping[str, Any]) -> Any:
    """Return a model with an output for each loss."""
    x = layers.Input((4,))
    h = layers.Dense(5, activation="tanh")(x)
    return keras.Model(x, {name: layers.Dense(WIDTH, activation=activation(name))(h) for name in names})


def targets(name: str, random: np.random.Generator, rows: int) -> NDArray[Any]:
    classes = random.integers(0, WIDTH, rows)
    if name in (*CLASSES, "ignored", "triplet", "supervised_contrastive"):
        return classes.astype(np.int32)
    if name in (*PROBABILITIES, "categorical_hinge"):
        return np.eye(WIDTH, dtype=np.float32)[classes]
    if name in (*POSITIVE, "cosine_similarity"):
        return random.uniform(0.5, 1.5, (rows, WIDTH)).astype(np.float32)
    return random.integers(0, 2, (rows, WIDTH)).astype(np.float32)


def agree(
    model: Any, given: Mapping[str, Any], interpreter: Interpreter, rows: Callable[[int], tuple[int, int]]
) -> None:
    """Train both for some steps; `rows` returns the rows of a step and those of its padded batch."""
    names, random, before = list(given), np.random.default_rng(1), model.get_weights()
    model.compile(optimizer=keras.optimizers.SGD(float(RATE)), loss=dict(given), run_eagerly=True)
    train = interpreter.get_signature_runner("train")
    for step in range(STEPS):
        real, padded = rows(step)
        x = random.normal(size=(real, 4)).astype(np.float32)
        y = {name: targets(name, random, real) for name in names}
        batch = {"x": x, **{f"y_{name}": value for name, value in y.items()}}
        batch = {key: np.concatenate([value, *[value[:1]] * (padded - real)]) for key, value in batch.items()}
        weight = np.array([padded / real] * real + [0] * (padded - real), np.float32)
        found = train(**batch, sample_weight=weight, learning_rate=RATE)["loss"]
        model.reset_metrics()
        expected = model.train_on_batch(x, y, return_dict=True)["loss"]
        assert float(found) == pytest.approx(float(expected), rel=2e-6)
    after = interpreter.get_signature_runner("parameters")()
    limit = 1e-5 * max(float(np.abs(v - old).max()) for v, old in zip(model.get_weights(), before, strict=True)) + 1e-7
    for i, v in enumerate(model.weights):
        np.testing.assert_allclose(after[f"a{i}"], v.numpy(), rtol=0, atol=limit, err_msg=v.path)


@pytest.mark.slow
def test_every_loss_trains_like_keras(tmp_path: Path) -> None:
    keras.utils.set_random_seed(2)
    model = model_of(ALONE)
    path = export_model(model, tmp_path / "m.tflite", loss=ALONE, optimizer="sgd", batch_size=BATCH)
    interpreter = Interpreter(str(path), num_threads=1)
    agree(model, ALONE, interpreter, lambda step: (BATCH if step else BATCH - 2, BATCH))
    random = np.random.default_rng(3)
    x, y = random.normal(size=(BATCH, 4)).astype(np.float32), {name: targets(name, random, BATCH) for name in ALONE}
    outputs = interpreter.get_signature_runner("infer")(x=x)
    given = {f"y_{name}": value for name, value in y.items()}
    found = interpreter.get_signature_runner("loss")(**outputs, **given)
    for name, loss in ALONE.items():
        function = loss.call if isinstance(loss, losses.Loss) else loss
        logits = outputs[f"logits_{name}"]
        alone = [function(y[name][i : i + 1].astype(np.float32), logits[i : i + 1]) for i in range(BATCH)]
        expected = [float(np.mean(value)) for value in alone]
        np.testing.assert_allclose(found[f"losses_{name}"], expected, rtol=1e-5, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(sum(found[f"losses_{name}"] for name in ALONE), found["losses"], rtol=1e-5)


@pytest.mark.slow
def test_losses_of_whole_batches_train_like_keras_on_any_number_of_rows(tmp_path: Path) -> None:
    keras.utils.set_random_seed(2)
    model = model_of(IN_BATCH)
    random = np.random.default_rng(0)
    y = {name: targets(name, random, 1) for name in IN_BATCH}
    example = (np.zeros((1, 4)), y)
    path = export_model(model, tmp_path / "m.tflite", loss=IN_BATCH, optimizer="sgd", batch_size=None, example=example)
    agree(model, IN_BATCH, Interpreter(str(path), num_threads=1), lambda step: (8 - 3 * step, 8 - 3 * step))
