"""Write trainable `.tflite` files as other tools would: `python foreign_models.py DIRECTORY`.

Each is a softmax regression, `[batch, 6]` to 3 classes, as a plain `tf.Module` with explicit gradient, no manifest, and
signatures that differ as the file's name says.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

FEATURES, CLASSES, BATCH, RATE = 6, 3, 4, 0.1


class Regression(tf.Module):
    """Softmax regression whose kernel starts at small values and whose bias starts at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = tf.Variable(np.random.default_rng(0).normal(0, 0.1, (FEATURES, CLASSES)).astype(np.float32))
        self.bias = tf.Variable(tf.zeros([CLASSES]))

    def infer(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"scores": tf.matmul(x, self.kernel) + self.bias}

    def loss_and_error(self, x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        logarithms = tf.nn.log_softmax(self.infer(x)["scores"])
        wanted = tf.one_hot(y, CLASSES)
        return -tf.reduce_sum(wanted * logarithms, axis=1), tf.exp(logarithms) - wanted

    def step(self, x: tf.Tensor, y: tf.Tensor, rate: Any, weight: Any = 1.0) -> dict[str, tf.Tensor]:
        losses, error = self.loss_and_error(x, y)
        error *= tf.reshape(weight * tf.ones_like(losses), [-1, 1]) / tf.cast(tf.shape(x)[0], tf.float32)
        self.kernel.assign_sub(rate * tf.matmul(x, error, transpose_a=True))
        self.bias.assign_sub(rate * tf.reduce_sum(error, axis=0))
        return {"loss": tf.reduce_mean(weight * losses)}

    def parameters(self) -> dict[str, tf.Tensor]:
        return {"a0": self.kernel.read_value(), "a1": self.bias.read_value()}

    def restore(self, a0: tf.Tensor, a1: tf.Tensor) -> dict[str, tf.Tensor]:
        self.kernel.assign(a0)
        self.bias.assign(a1)
        return {"restored": tf.constant(2)}


def functions(model: Regression, batch: int | None, step: Any = None, **more: tf.TensorSpec) -> dict[str, Any]:
    """Return the required signatures; `more` are additional inputs of `train`."""
    x, y = tf.TensorSpec([batch, FEATURES], name="x"), tf.TensorSpec([batch], tf.int32, name="y")
    step = step or (lambda x, y: model.step(x, y, RATE))
    return {
        "train": tf.function(step).get_concrete_function(x=x, y=y, **more),
        "infer": tf.function(model.infer).get_concrete_function(x=x),
        "parameters": tf.function(model.parameters).get_concrete_function(),
        "restore": tf.function(model.restore).get_concrete_function(
            a0=tf.TensorSpec([FEATURES, CLASSES], name="a0"), a1=tf.TensorSpec([CLASSES], name="a1")
        ),
    }


def plain() -> tuple[Regression, dict[str, Any]]:
    """A fixed batch, a fixed step size, nothing else."""
    model = Regression()
    return model, functions(model, BATCH)


def dynamic() -> tuple[Regression, dict[str, Any]]:
    """Any number of rows; the step size is an input."""
    model = Regression()
    rate = tf.TensorSpec([], name="learning_rate")
    return model, functions(
        model, None, lambda x, y, learning_rate: model.step(x, y, learning_rate), learning_rate=rate
    )


def weighted() -> tuple[Regression, dict[str, Any]]:
    """A fixed batch whose rows have weights that are summed and divided by the number of rows."""
    model = Regression()
    weight = tf.TensorSpec([BATCH], name="sample_weight")
    step = lambda x, y, sample_weight: model.step(x, y, RATE, sample_weight)  # noqa: E731
    return model, functions(model, BATCH, step, sample_weight=weight)


def proximal() -> tuple[Regression, dict[str, Any]]:
    """A fixed batch, and a step that shrinks the weights by `mu`."""
    model = Regression()

    def step(x: tf.Tensor, y: tf.Tensor, mu: tf.Tensor) -> dict[str, tf.Tensor]:
        model.kernel.assign_sub(RATE * mu * model.kernel)
        return model.step(x, y, RATE)

    return model, functions(model, BATCH, step, mu=tf.TensorSpec([], name="mu"))


def flex() -> tuple[Regression, dict[str, Any]]:
    """A step that needs an op of full TensorFlow."""
    model = Regression()

    def step(x: tf.Tensor, y: tf.Tensor) -> dict[str, tf.Tensor]:
        return model.step(tf.raw_ops.SoftplusGrad(gradients=x, features=x), y, RATE)

    return model, functions(model, BATCH, step)


def with_velocity(update: Any) -> tuple[Regression, dict[str, Any]]:
    """A step with momentum in a variable that no signature returns; `update(velocity, gradient)` sets it."""
    model = Regression()
    model.velocity = tf.Variable(tf.zeros([FEATURES, CLASSES]), name="velocity")

    def step(x: tf.Tensor, y: tf.Tensor) -> dict[str, tf.Tensor]:
        losses, error = model.loss_and_error(x, y)
        update(model.velocity, tf.matmul(x, error, transpose_a=True))
        model.kernel.assign_sub(RATE * model.velocity)
        return {"loss": tf.reduce_mean(losses)}

    return model, functions(model, BATCH, step)


def hidden() -> tuple[Regression, dict[str, Any]]:
    """Momentum that no signature returns."""
    return with_velocity(lambda velocity, gradient: velocity.assign(0.9 * velocity + gradient))


def hidden_branch() -> tuple[Regression, dict[str, Any]]:
    """The same, set only in the branches of a condition."""

    def update(velocity: tf.Variable, gradient: tf.Tensor) -> None:
        small = tf.reduce_sum(gradient) < 1
        tf.cond(small, lambda: velocity.assign(velocity + gradient), lambda: velocity.assign(gradient))

    return with_velocity(update)


def hidden_loop() -> tuple[Regression, dict[str, Any]]:
    """The same, set only in the body of a loop."""

    def update(velocity: tf.Variable, gradient: tf.Tensor) -> None:
        def body(i: tf.Tensor) -> list[tf.Tensor]:
            velocity.assign(0.9 * velocity + gradient)
            return [i + 1]

        tf.while_loop(lambda i: i < 2, body, [tf.constant(0)])

    return with_velocity(update)


def write_only() -> tuple[Regression, dict[str, Any]]:
    """A step that writes the error to a variable that nothing reads."""
    model = Regression()
    model.note = tf.Variable(tf.zeros([CLASSES]))

    def step(x: tf.Tensor, y: tf.Tensor) -> dict[str, tf.Tensor]:
        model.note.assign(tf.reduce_sum(model.loss_and_error(x, y)[1], axis=0))
        return model.step(x, y, RATE)

    return model, functions(model, BATCH, step)


def endless() -> tuple[Regression, dict[str, Any]]:
    """An inference that terminates only on positive examples."""
    model = Regression()

    def infer(x: tf.Tensor) -> dict[str, tf.Tensor]:
        (i,) = tf.while_loop(lambda i: i <= 0, lambda i: [tf.minimum(2 * i, 0.0)], [tf.reduce_min(x)])
        return {"scores": model.infer(x)["scores"] + i}

    signatures = functions(model, BATCH)
    x = tf.TensorSpec([BATCH, FEATURES], name="x")
    return model, {**signatures, "infer": tf.function(infer).get_concrete_function(x=x)}


MODELS = (plain, dynamic, weighted, proximal, flex, hidden, hidden_branch, hidden_loop, write_only, endless)


def convert(model: Regression, signatures: dict[str, Any], path: Path) -> None:
    saved = path.with_suffix(".saved")
    tf.saved_model.save(model, str(saved), signatures=signatures)
    converter = tf.lite.TFLiteConverter.from_saved_model(str(saved), signature_keys=list(signatures))
    builtin, select = tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS
    converter.target_spec.supported_ops = [builtin, select] if path.stem == "flex" else [builtin]
    converter.experimental_enable_resource_variables = True
    path.write_bytes(converter.convert())


if __name__ == "__main__":
    for make in MODELS:
        convert(*make(), Path(sys.argv[1]) / f"{make.__name__}.tflite")
