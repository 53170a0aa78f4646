"""Inference on any number of rows, and embeddings of a device's examples."""

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.batches import padded
from odt_sim.device.embedding_cache import digest_of_body
from odt_sim.device.examples import Examples
from odt_sim.device.runtime_pool import ModelState, RuntimePool
from odt_sim.model.contract import answer_of
from odt_sim.model.trainable import TrainableModel

Array = NDArray[Any]


@dataclass
class Calls:
    """Model calls of a device.

    Attributes:
        train: Training steps.
        infer: Batches of inference or embedding. Cached embeddings count as computed, so that every backend counts alike.
        by_signature: The same calls by signature.
        rows: The examples of these calls, without padding.
    """

    train: int = 0
    infer: int = 0
    by_signature: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)

    def add_step(self, signature: str, rows: int) -> None:
        """Count a training step on some examples."""
        self.train += 1
        self._add(signature, 1, rows)

    def add_inference(self, signature: str, calls: int, rows: int) -> None:
        """Count calls of inference or embedding on some examples in all."""
        self.infer += calls
        self._add(signature, calls, rows)

    def _add(self, signature: str, calls: int, rows: int) -> None:
        self.by_signature[signature] += calls
        self.rows[signature] += rows


class Inference:
    """Runs a device's `infer`, `embed` and `head_infer`, and counts the calls."""

    def __init__(self, device: int, state: ModelState, pool: RuntimePool, calls: Calls) -> None:
        """Run the model with a device's state.

        Args:
            device: The device's id.
            state: Its weights.
            pool: The pool that its embeddings are cached in.
            calls: The counter to increase.
        """
        self._device, self._state, self._pool, self._calls = device, state, pool, calls
        self._body: str | None = None  # the digest of the body, while it is known
        self._embedded: dict[str, str] = {}  # by split, the body whose embeddings were counted

    def body_changed(self) -> None:
        """Discard what was derived from the parameters outside the head."""
        self._body = None

    def outputs(self, signature: str, x: Array) -> Array:
        """Return the outputs `[rows, ...]` of a signature for `x` `[rows, ...]`."""
        self._calls.add_inference(signature, _call_count(self._pool.model, signature, len(x)), len(x))
        return self._run(signature, x)

    def embedded(self, split: str, examples: Examples) -> Examples:
        """Return a split with embeddings as `x`; compute them once per body."""
        if self._body is None:
            self._body = digest_of_body(self._state.weights)
        if self._embedded.get(split) != self._body:
            calls = _call_count(self._pool.model, "embed", len(examples))
            self._calls.add_inference("embed", calls, len(examples))
            self._embedded[split] = self._body
        embeddings = self._pool.embeddings.get(
            self._device, split, examples, self._body, lambda: self._run("embed", examples.take()[0])
        )
        return examples.with_embeddings(embeddings)

    def _run(self, signature: str, x: Array) -> Array:
        runtime = self._state.runtime()
        size, fixed = _call_size(runtime.model, signature)
        batches = [x[start : start + size] for start in range(0, len(x), size)]
        parts = [runtime.infer(padded(batch, size) if fixed else batch, signature) for batch in batches]
        if not parts:
            return np.zeros((0, *answer_of(runtime.model.signatures[signature]).shape[1:]), np.float32)
        return np.concatenate(parts)[: len(x)]


def _call_count(model: TrainableModel, signature: str, rows: int) -> int:
    return math.ceil(rows / _call_size(model, signature)[0])


def _call_size(model: TrainableModel, signature: str) -> tuple[int, bool]:
    """Return the rows of one call, and whether each call needs exactly that many."""
    (rows,) = model.signatures[signature].inputs.values()
    return (rows.shape[0], True) if rows.shape[0] > 0 else (model.batch_size, False)
