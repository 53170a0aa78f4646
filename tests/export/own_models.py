"""Models as users write them: classes for Keras 2, and plain TensorFlow modules."""

from typing import Any

import keras
import tensorflow as tf

from odt_sim.export import BaseTFLiteModel, tflite_model_class

BATCH = 4


@tflite_model_class
class Pictures(BaseTFLiteModel):
    """A model with the default methods; `train` is Keras's own step, with a running mean as loss."""

    X_SHAPE = [6, 6, 2]  # noqa: RUF012 - as authors write it
    Y_SHAPE = [3]  # noqa: RUF012
    BATCH_SIZE = BATCH

    def __init__(self) -> None:
        self.model = self.build_model()
        self.model.compile(
            optimizer=tf.keras.optimizers.SGD(0.1, momentum=0.9), loss="categorical_crossentropy", metrics=["accuracy"]
        )

    def build_model(self) -> Any:
        return tf.keras.Sequential(
            [
                tf.keras.Input(shape=tuple(self.X_SHAPE)),
                tf.keras.layers.Conv2D(4, 3, activation="relu"),
                tf.keras.layers.BatchNormalization(),
                tf.keras.layers.MaxPooling2D(pool_size=(2, 2)),
                tf.keras.layers.Flatten(),
                tf.keras.layers.Dropout(0.2),
                tf.keras.layers.Dense(units=3, activation="softmax"),
            ]
        )

    def loss_of(self, x: Any, y: Any) -> Any:
        return self.model.compute_loss(x, y, self.model(x))

    def validate(self, x: Any, y: Any) -> dict[str, Any]:
        return {"loss": self.loss_of(x, y), "mistakes": tf.reduce_sum(1.0 - tf.reduce_max(self.model(x) * y, 1))}

    def initialize(self) -> None:
        for weight in self.model.weights:
            weight.assign(tf.ones_like(weight))


@tflite_model_class
class Keras2(BaseTFLiteModel):
    """A model with own methods whose names Keras 3 lacks."""

    X_SHAPE = [5]  # noqa: RUF012
    Y_SHAPE = [2]  # noqa: RUF012
    BATCH_SIZE = BATCH

    def __init__(self) -> None:
        self.model = tf.keras.Sequential(
            [
                tf.keras.Input(shape=(5,)),
                tf.keras.layers.Dense(4, activation="tanh", kernel_regularizer=tf.keras.regularizers.L2(0.01)),
                tf.keras.layers.Dense(2),
            ]
        )
        self.model.compile(optimizer=tf.keras.optimizers.Adam(0.01), loss=tf.keras.losses.MeanSquaredError())
        self.step = 0.5

    def train(self, x: Any, y: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            predictions = self.model(x, training=True)
            loss = self.model.compiled_loss(y, predictions, regularization_losses=self.model.losses)
        self.model.optimizer.minimize(loss, self.model.trainable_variables, tape=tape)
        return {"loss": loss, "rate": self.model.optimizer.lr}

    def infer(self, x: Any) -> dict[str, Any]:
        return {"values": self.model(x, training=False)}

    def parameters(self) -> dict[str, Any]:
        weights = reversed(self.model.weights)  # in a different order
        return {f"a{index}": weight.read_value() for index, weight in enumerate(weights)}

    def restore(self, **parameters: Any) -> dict[str, Any]:
        for index, weight in enumerate(reversed(self.model.weights)):
            weight.assign(parameters[f"a{index}"])
        assert self.parameters is not None
        return self.parameters()


@tflite_model_class
class Sequences(BaseTFLiteModel):
    """An unchanged class from the documentation: open batch size, recurrent and random layers, a metric."""

    X_SHAPE = [4, 3]  # noqa: RUF012
    Y_SHAPE = [1]  # noqa: RUF012

    def __init__(self) -> None:
        model = keras.Sequential([keras.Input(shape=tuple(self.X_SHAPE))])
        model.add(keras.layers.LSTM(units=5, return_sequences=True))
        model.add(keras.layers.LeakyReLU(0.5))
        model.add(keras.layers.Dropout(0.4))
        model.add(keras.layers.Flatten())
        model.add(keras.layers.Dense(1))
        model.compile(
            optimizer=keras.optimizers.SGD(learning_rate=0.05, momentum=0.9),
            loss="mean_squared_error",
            metrics=["mean_absolute_error"],
        )
        self.model = model


class Custom(tf.Module):
    """A module with its own functions around an uncompiled Keras model and an optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.network = keras.Sequential(
            [keras.Input((5,)), keras.layers.Dense(4, activation="relu"), keras.layers.Dense(2)]
        )
        self.network.layers[0].trainable = False
        self.optimizer = keras.optimizers.RMSprop(0.01)

    @tf.function(input_signature=[tf.TensorSpec([None, 5], name="x"), tf.TensorSpec([None], tf.int32, name="y")])
    def train(self, x: Any, y: Any) -> dict[str, Any]:
        def loss() -> Any:
            return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, self.network(x, training=True)))

        before = loss()
        self.optimizer.minimize(loss, self.network.trainable_variables)
        return {"loss": before}

    @tf.function(input_signature=[tf.TensorSpec([None, 5], name="x")])
    def infer(self, x: Any) -> dict[str, Any]:
        return {"logits": self.network(x)}

    @tf.function(input_signature=[])
    def parameters(self) -> dict[str, Any]:
        return {f"a{i}": weight.value for i, weight in enumerate(self.network.weights)}

    @tf.function
    def restore(self, **parameters: Any) -> dict[str, Any]:
        for i, weight in enumerate(self.network.weights):
            weight.assign(parameters[f"a{i}"])
        return self.parameters()


class Plain(tf.Module):
    """No Keras: two losses, a frozen layer, manual clipping, gradient accumulation over two steps, and conditions."""

    def __init__(self) -> None:
        super().__init__()
        random = tf.random.Generator.from_seed(3)
        self.frozen = tf.Variable(random.normal([5, 4]), trainable=False, name="frozen/kernel")
        self.kernel = tf.Variable(random.normal([4, 2]), name="dense/kernel")
        self.bias = tf.Variable(tf.zeros([2]), name="dense/bias")
        self.trained = [self.kernel, self.bias]
        self.sums = [tf.Variable(tf.zeros_like(v), trainable=False) for v in self.trained]
        self.steps = tf.Variable(0, trainable=False, dtype=tf.int32)
        self.rate = tf.Variable(0.5, trainable=False)  # only read

    def logits(self, x: Any) -> Any:
        return tf.nn.relu(x @ self.frozen) @ self.kernel + self.bias

    @tf.function(
        input_signature=[
            tf.TensorSpec([BATCH, 5]),
            tf.TensorSpec([BATCH], tf.int32),
            tf.TensorSpec([BATCH], name="sample_weight"),
        ]
    )
    def train(self, x: Any, y: Any, sample_weight: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            losses = tf.nn.softmax_cross_entropy_with_logits(tf.one_hot(y, 2), self.logits(x))
            loss = tf.reduce_mean(losses * sample_weight)
            total = loss + 0.1 * tf.nn.l2_loss(self.kernel) + 0.01 * tf.reduce_sum(tf.abs(self.bias))
        gradients, norm = tf.clip_by_global_norm(tape.gradient(total, self.trained), 1.0)
        if norm > 1.5:
            gradients = [0.5 * g for g in gradients]
        for own, gradient in zip(self.sums, gradients):  # noqa: B905 - as authors write it
            own.assign_add(gradient)
        self.steps.assign_add(1)
        if self.steps % 2 == 0:
            for v, own in zip(self.trained, self.sums):  # noqa: B905
                v.assign_sub(self.rate * own / 2.0)
                own.assign(tf.zeros_like(own))
        return {"loss": loss, "norm": norm}

    @tf.function(input_signature=[tf.TensorSpec([BATCH, 5])])
    def infer(self, x: Any) -> dict[str, Any]:
        return {"logits": self.logits(x)}

    @tf.function(input_signature=[tf.TensorSpec([BATCH, 5]), tf.TensorSpec([BATCH], tf.int32)])
    def validate(self, x: Any, y: Any) -> dict[str, Any]:
        right = tf.equal(tf.argmax(self.logits(x), 1, tf.int32), y)
        return {"accuracy": tf.reduce_mean(tf.cast(right, tf.float32))}

    @tf.function(input_signature=[])
    def parameters(self) -> dict[str, Any]:
        return {"a0": self.frozen, "a1": self.kernel, "a2": self.bias}

    @tf.function(
        input_signature=[
            tf.TensorSpec([5, 4], name="a0"),
            tf.TensorSpec([4, 2], name="a1"),
            tf.TensorSpec([2], name="a2"),
        ]
    )
    def restore(self, a0: Any, a1: Any, a2: Any) -> dict[str, Any]:
        self.frozen.assign(a0)
        self.kernel.assign(a1)
        self.bias.assign(a2)
        return {"restored": tf.constant(3)}
