"""Train a Keras model and its exported file side by side on the same batches."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray

from odt_sim.device.verification_process import call_signatures
from odt_sim.model.trainable import TrainableModel

BATCH = 8
RATE = 0.05


@dataclass
class Twins:
    """A Keras model and the interpreter of its exported file.

    Attributes:
        model: The Keras model, compiled with the same loss and optimizer.
        path: The exported file.
        interpreter: A fresh interpreter of it.
        loss: The loss that the file names.
        random: The source of batches.
    """

    model: Any
    path: Path
    interpreter: Interpreter
    loss: str | None
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def call(self, signature: str, **inputs: Any) -> dict[str, NDArray[Any]]:
        return self.interpreter.get_signature_runner(signature)(**inputs)

    def listed(self, signature: str, prefix: str) -> list[NDArray[Any]]:
        values = self.call(signature)
        assert set(values) == {f"{prefix}{i}" for i in range(len(values))}
        return [values[f"{prefix}{i}"] for i in range(len(values))]

    def batch(self, rows: int = BATCH) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float32]]:
        """Return x, y and sample weights; half of the x are integers, so that maxima tie."""
        spec, target = (self.interpreter.get_signature_runner("train").get_input_details()[k] for k in ("x", "y"))
        shape = (rows, *spec["shape"][1:])
        if spec["dtype"] == np.int32:
            x = self.random.integers(0, 6, shape).astype(np.int32)
        else:
            x = self.random.normal(size=shape).astype(np.float32)
            x[::2] = np.round(x[::2])
        return x, self._targets((rows, *target["shape"][1:])), self.random.uniform(0.5, 1.5, rows).astype(np.float32)

    def _targets(self, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return random y for the model's loss."""
        loss, classes = self.loss, self.model.output_shape[-1]
        if loss == "sparse_categorical_crossentropy":
            return self.random.integers(0, classes, shape).astype(np.int32)
        if loss == "categorical_crossentropy":
            return np.eye(classes, dtype=np.float32)[self.random.integers(0, classes, shape[:-1])]
        if loss == "binary_crossentropy":
            return self.random.integers(0, 2, shape).astype(np.float32)
        if loss == "kl_divergence":
            return self.random.dirichlet(np.ones(classes), shape[:-1]).astype(np.float32)
        return self.random.normal(size=shape).astype(np.float32)

    def train(self, steps: Sequence[int]) -> list[tuple[float, float]]:
        """Train both with a decreasing learning rate; return the losses of Keras and of LiteRT per step.

        `steps` contains the rows of each step.
        """
        losses = []
        for step, rows in enumerate(steps):
            x, y, weight = self.batch(rows)
            rate = np.float32(RATE * 0.9**step)
            self.model.optimizer.learning_rate = rate
            lite = self.call("train", x=x, y=y, sample_weight=weight, learning_rate=rate)
            positions = self.model.output_shape[1:-1]  # Keras expects a weight per output
            each = np.broadcast_to(weight.reshape(-1, *[1] * len(positions)), (len(x), *positions))
            loss = np.ravel(self.model.train_on_batch(x, y, sample_weight=each))[0]  # before the metrics of layers
            losses.append((float(loss), float(lite["loss"])))
            self.model.reset_metrics()
        return losses

    def agree(self, steps: Sequence[int] = (BATCH,) * 5) -> None:
        """Train both; assert that weights and slots agree within 1e-5 of the largest change plus float32 rounding."""
        before = [v.numpy() for v in self.model.trainable_weights]
        np.testing.assert_allclose(*zip(*self.train(steps), strict=True), rtol=1e-5, atol=2e-6)
        after = [v.numpy() for v in self.model.trainable_weights]
        moved = [float(np.abs(new - old).max()) for new, old in zip(after, before, strict=True)]
        assert min(moved) > 1e-6, "a weight was not trained"
        limit = 1e-5 * max(moved) + 1e-7
        differences = self.differences()
        assert max(differences.values()) < limit, {name: d for name, d in differences.items() if not d < limit}
        for found, expected in zip(*self.slots(), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=limit)

    def restore(self) -> None:
        """Copy the weights and slots from Keras to LiteRT."""
        self.call("restore", **{f"a{i}": v.numpy() for i, v in enumerate(self.model.weights)})
        pairs = list(zip(*self.slots(), strict=True))
        if not pairs:
            return
        self.call(
            "restore_optimizer_state", **{f"s{i}": value.astype(own.dtype) for i, (own, value) in enumerate(pairs)}
        )

    def slots(self) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
        """Return the optimizer's slots in LiteRT and in Keras, without those unused by updates, such as SGD's count."""
        if "optimizer_state" not in self.interpreter.get_signature_list():
            return [], []
        optimizer = self.model.optimizer
        weights = {id(v) for v in self.model.weights}
        random_states = [v for v in self.model.variables if id(v) not in weights]
        candidates = [v for v in [*optimizer.variables, *random_states] if v is not optimizer.learning_rate]
        found = self.listed("optimizer_state", "s")
        expected: list[NDArray[Any]] = []
        for value in reversed(found):
            while not _same_slot(last := candidates.pop().numpy(), value):
                pass
            expected.insert(0, last)
        return found, expected

    def differences(self) -> dict[str, float]:
        """Return the largest difference per weight."""
        floats = [v for v in self.model.weights if v.dtype == "float32"]
        pairs = zip(floats, self.listed("parameters", "a"), strict=True)
        return {v.path: float(np.abs(v.numpy() - value).max()) for v, value in pairs}


def _same_slot(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Return whether two values may belong to one slot: equal shape and kind, and seed for a random layer's state."""
    alike = one.shape == other.shape and one.dtype.kind == other.dtype.kind
    return alike and (one.shape != (2,) or one.dtype.kind != "i" or bool(one[0] == other[0]))


@pytest.fixture(scope="session")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Twins]:
    """Return a function that exports a Keras model, or takes a given file with other weights, and opens the file."""
    from odt_sim.export import export_model

    gc.freeze()  # TensorFlow collects garbage in every export, which is slow in a process with many objects

    def make(
        model: Any,
        loss: Any = "sparse_categorical_crossentropy",
        optimizer: Any = "sgd",
        path: Path | None = None,
        **options: Any,
    ) -> Twins:
        import keras

        optimizer = keras.optimizers.get(optimizer)
        optimizer.learning_rate = RATE
        if path is None:
            path = tmp_path_factory.mktemp("export") / "model.tflite"
            export_model(model, path, loss=loss, optimizer=optimizer, **{"batch_size": BATCH, **options})
        if loss == "sparse_categorical_crossentropy":
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        optimizer.build(model.trainable_variables)  # in its first step, Keras ignores the initial values of slots
        model.compile(optimizer=optimizer, loss=loss, jit_compile=False, run_eagerly=True)
        content = path.read_bytes()
        call_signatures(content, str(path))  # as `TrainableModel.load` does, in a process per file
        loaded = TrainableModel.from_content(content, where=str(path))
        return Twins(model, path, Interpreter(str(path), num_threads=1), loaded.loss)

    return make
