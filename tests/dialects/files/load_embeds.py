"""`load` extracts features: `train` takes a bottleneck, as in TensorFlow's example of model personalization."""

from pathlib import Path

import tensorflow as tf

from dialects.models import HIDDEN, RATE, Taped, checkpoint, function, of_x, of_y, spec, write


class Head(Taped):
    """The classifier, trained on the outputs of the hidden layer."""

    @property
    def weights(self) -> list[tf.Variable]:
        return [self.kernel, self.bias]

    def output(self, bottleneck: tf.Tensor) -> tf.Tensor:
        return tf.matmul(bottleneck, self.kernel) + self.bias

    def step(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(y, self.output(x)))
        for weight, gradient in zip(self.weights, tape.gradient(loss, self.weights), strict=True):
            weight.assign_sub(RATE * gradient)
        return loss


def write_all(folder: Path) -> None:
    model = Head()
    save, restore = checkpoint(model.weights, [])
    bottleneck = spec([None, HIDDEN])
    signatures = {
        "load": function(lambda feature: {"bottleneck": model.hidden(feature)}, feature=of_x()),
        "train": function(
            lambda bottleneck, label: {"loss": model.step(bottleneck, label)}, bottleneck=bottleneck, label=of_y()
        ),
        "infer": function(lambda feature: {"output": tf.nn.softmax(model.logits(feature))}, feature=of_x()),
        "save": save,
        "restore": restore,
    }
    roles = {
        "embed": {"name": "load", "x": "feature", "output": "bottleneck"},
        "train": {"name": "train", "x": "bottleneck", "y": "label", "loss": "loss"},
        "infer": {"name": "infer", "x": "feature", "output": "output"},
        "save": {"name": "save", "checkpoint_path": "checkpoint_path"},
        "load": {"name": "restore", "checkpoint_path": "checkpoint_path"},
    }
    write(folder / "load_embeds.tflite", model, signatures, roles, flex=True, x_shape=[HIDDEN])
