"""Several steps per call of files of other tools give the bits of single steps, whatever the form of their ops."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from odt_sim.model.editing.repeated import add_repeated
from odt_sim.model.editing.tree import packed, unpacked
from tests.model.foreign_models import Regression

Step = Callable[[Regression, tf.Tensor, tf.Tensor], dict[str, tf.Tensor]]
X = np.random.default_rng(0).normal(size=(2, 4, 2, 3)).astype(np.float32)
Y = np.array([[0, 2, 1, 1], [2, 0, 0, 1]], np.int32)


def trained(model: Regression, x: tf.Tensor, y: tf.Tensor) -> dict[str, tf.Tensor]:
    return model.step(tf.reshape(x, [4, 6]), y, 0.1)


def product(model: Regression, x: tf.Tensor) -> tf.Tensor:
    """Return `[1, 4, 3]`, a product of three axes between reshapes."""
    return tf.matmul(tf.reshape(x, [1, 4, 6]), tf.reshape(model.kernel.read_value(), [1, 6, 3]))


def with_product(model: Regression, x: tf.Tensor, y: tf.Tensor) -> dict[str, tf.Tensor]:
    error = tf.nn.softmax(tf.reshape(product(model, x), [4, 3]) + model.bias) - tf.one_hot(y, 3)
    model.kernel.assign_sub(0.1 * tf.matmul(tf.reshape(x, [4, 6]), error, transpose_a=True))
    return {"loss": tf.reduce_mean(error * error)}


def with_long_labels(model: Regression, x: tf.Tensor, y: tf.Tensor) -> dict[str, tf.Tensor]:
    return trained(model, x, tf.cast(y, tf.int64))


def with_product_assigned(model: Regression, x: tf.Tensor, y: tf.Tensor) -> dict[str, tf.Tensor]:
    result = trained(model, x, y)
    model.more.assign(product(model, x))
    return result


def with_constant_loss(model: Regression, x: tf.Tensor, y: tf.Tensor) -> dict[str, tf.Tensor]:
    trained(model, x, y)
    return {"loss": tf.constant(0.0)}


def with_constant_assigned(model: Regression, x: tf.Tensor, y: tf.Tensor) -> dict[str, tf.Tensor]:
    loss = trained(model, x, y)["loss"] + tf.reduce_sum(model.more.read_value())
    model.more.assign(tf.ones([1, 4, 3]))
    return {"loss": loss}


def with_masked_loss(model: Regression, x: tf.Tensor, y: tf.Tensor) -> dict[str, tf.Tensor]:
    losses, _ = model.loss_and_error(tf.reshape(x, [4, 6]), y)
    trained(model, x, y)
    return {"loss": tf.reduce_sum(tf.boolean_mask(losses, y > 0))}


def with_loss_of_labels(model: Regression, x: tf.Tensor, y: tf.Tensor) -> dict[str, tf.Tensor]:
    trained(model, x, y)
    return {"loss": tf.reduce_mean(tf.cast(y, tf.float32))}


def converted(step: Step, label: str, folder: Path) -> bytes:
    """Convert a step with inputs `x` and labels; the labels' name decides the order of tensors."""
    model = Regression()
    model.more = tf.Variable(tf.zeros([1, 4, 3]))
    x, y = tf.TensorSpec([4, 2, 3], name="x"), tf.TensorSpec([4], tf.int32, name=label)
    train = tf.function(lambda **given: step(model, given["x"], given[label])).get_concrete_function(
        **{"x": x, label: y}
    )
    read = tf.function(lambda: {f"a{i}": v.read_value() for i, v in enumerate(model.variables)}).get_concrete_function()
    tf.saved_model.save(model, folder, signatures={"train": train, "parameters": read})
    converter = tf.lite.TFLiteConverter.from_saved_model(str(folder))
    converter.experimental_enable_resource_variables = True
    return bytes(converter.convert())


def results(content: bytes, label: str, *, several: bool) -> list[Any]:
    """Return the losses of two steps, and the variables afterwards."""
    interpreter = Interpreter(model_content=content, num_threads=1)
    if several:
        positions = np.array([[3, 7, 1, 5], [0, 2, 6, 4]], np.int32)
        rows = np.empty((8, 2, 3), np.float32)
        rows[positions] = X
        given = {"x": rows, "positions": positions, label: Y}
        losses = interpreter.get_signature_runner("train_2_times")(**given)["loss"]
    else:
        train = interpreter.get_signature_runner("train")
        losses = np.array([train(**{"x": x, label: y})["loss"] for x, y in zip(X, Y, strict=True)])
    return [losses, *interpreter.get_signature_runner("parameters")().values()]


@pytest.mark.parametrize("label", ["y", pytest.param("label", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "step",
    [
        with_product,
        *(
            pytest.param(step, marks=pytest.mark.slow)
            for step in (
                trained,
                with_long_labels,
                with_product_assigned,
                with_constant_loss,
                with_constant_assigned,
                with_masked_loss,
                with_loss_of_labels,
            )
        ),
    ],
)
def test_steps_have_the_bits_of_single_ones(step: Step, label: str, tmp_path: Path) -> None:
    content = converted(step, label, tmp_path)
    file = unpacked(content)
    add_repeated(file, "train")
    expected = results(content, label, several=False)
    for several in (False, True):
        for own, same in zip(results(packed(file), label, several=several), expected, strict=True):
            np.testing.assert_array_equal(own, same)
