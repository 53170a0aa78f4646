"""Calls of a model in Python, and the same calls in a page."""

from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray

from odt_sim import TrainableModel

Array = NDArray[Any]
WRITERS = {"parameters": "restore", "optimizer_state": "restore_optimizer_state"}


class Call(NamedTuple):
    """A call of a signature, with its outputs in Python."""

    signature: str
    inputs: dict[str, Array]
    outputs: dict[str, Array]

    def packed(self) -> dict[str, Any]:
        """Return the signature and the inputs for `replay.js`."""
        inputs = {
            name: {"dtype": str(value.dtype), "shape": list(value.shape), "data": encoded(value.tobytes())}
            for name, value in self.inputs.items()
        }
        return {"signature": self.signature, "inputs": inputs}


@dataclass
class Recording:
    """A fresh interpreter of a model with one thread, which records its calls.

    Attributes:
        model: The model.
        calls: The calls in their order.
    """

    model: TrainableModel
    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._interpreter = Interpreter(model_content=self.model.content, num_threads=1)
        self._random = np.random.default_rng(0)

    def call(self, signature: str, **inputs: Any) -> dict[str, Array]:
        """Run a signature and record the call."""
        arrays = {name: np.asarray(value) for name, value in inputs.items()}
        outputs = {name: np.array(value) for name, value in self.run(signature, arrays).items()}
        self.calls.append(Call(signature, arrays, outputs))
        return outputs

    def run(self, signature: str, inputs: dict[str, Array]) -> dict[str, Array]:
        """Run a signature without recording it."""
        outputs: dict[str, Array] = self._interpreter.get_signature_runner(signature)(**inputs)
        return outputs

    def train(self, signature: str = "train", rows: int = 8) -> float:
        """Run a training step on random examples and return its loss; `rows` applies to files of any number of rows."""
        return float(self.call(signature, **self._random_inputs(signature, rows))["loss"].item())

    def infer(self, signature: str = "infer", rows: int = 8) -> None:
        """Run an inference signature on random examples."""
        self.call(signature, **self._random_inputs(signature, rows))

    def state(self) -> dict[str, dict[str, Array]]:
        """Read the weights and slots."""
        return {name: self.call(name) for name in WRITERS if name in self.model.signatures}

    def restore(self, state: dict[str, dict[str, Array]]) -> None:
        """Set the weights and slots."""
        for name, tensors in state.items():
            self.call(WRITERS[name], **tensors)

    def inputs(self, signature: str) -> Any:
        return self.model.signatures[signature].inputs.values()

    def _random_inputs(self, signature: str, rows: int) -> dict[str, Array]:
        tensors = self.inputs(signature)
        return {t.name: self._drawn(t.name, [rows if n < 0 else n for n in t.shape], t.dtype) for t in tensors}

    def _drawn(self, name: str, shape: list[int], dtype: str) -> Array:
        if name == "sample_weight":
            return self._random.uniform(0.5, 1.5, shape).astype(np.float32)
        if name == "mu":
            return np.array(0.1, np.float32)
        if name == "learning_rate":
            return np.array(0.05 if self.model.manifest.plain_sgd else 0.001, np.float32)
        if name == "y" and dtype == "float32":
            return self._targets(shape)
        if name == "y":
            return self._random.integers(0, self.model.classes or 2, shape).astype(np.int32)
        if dtype == "int32":
            return self._random.integers(0, 6, shape).astype(np.int32)
        return self._random.normal(size=shape).astype(np.float32)

    def _targets(self, shape: list[int]) -> Array:
        loss = self.model.loss
        if loss == "categorical_crossentropy":
            return np.eye(shape[-1], dtype=np.float32)[self._random.integers(0, shape[-1], shape[:-1])]
        if loss == "binary_crossentropy":
            return self._random.integers(0, 2, shape).astype(np.float32)
        if loss == "kl_divergence":
            return self._random.dirichlet(np.ones(shape[-1]), shape[:-1]).astype(np.float32)
        return self._random.normal(size=shape).astype(np.float32)

    def replayed(self, page: Any) -> list[dict[str, Array]]:
        """Repeat the calls in a page and return their outputs."""
        given = {"file": encoded(self.model.content), "calls": [call.packed() for call in self.calls]}
        results = page.evaluate("async (given) => (await import('./replay.js')).replay(given)", given)
        return [
            {
                name: np.frombuffer(b64decode(found[name]), value.dtype).reshape(value.shape)
                for name, value in outputs.items()
            }
            for (_, _, outputs), found in zip(self.calls, results, strict=True)
        ]

    def differences(self, page: Any) -> dict[str, float]:
        """Repeat the calls in a page.

        Returns:
            For each output, as `signature.name`, the largest difference relative to the output's largest number; for a
            weight, relative to the largest weight of the model.
        """
        worst: dict[str, float] = {}
        for (signature, _, outputs), found in zip(self.calls, self.replayed(page), strict=True):
            largest = max(map(_largest, outputs.values())) if signature == "parameters" else None
            for name, expected in outputs.items():
                key = f"{signature}.{name}"
                worst[key] = max(worst.get(key, 0.0), _difference(found[name], expected, largest or _largest(expected)))
        return worst


def _largest(array: Array) -> float:
    return float(np.abs(array.astype(float)).max(initial=0.0))


def _difference(found: Array, expected: Array, largest: float) -> float:
    if np.array_equal(found, expected):
        return 0.0
    return _largest(found.astype(float) - expected) / largest if largest else float("inf")


def encoded(content: bytes) -> str:
    return b64encode(content).decode()
