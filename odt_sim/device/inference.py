"""Inference on any number of rows, and embeddings of a device's examples."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from odt_sim.data.columns import Array, Rows, only, prefixed, rows_of
from odt_sim.device.batches import padded
from odt_sim.device.embedding_cache import digest_of_body
from odt_sim.device.examples import Examples, targets_of
from odt_sim.device.runtime import Runtime, inputs_of
from odt_sim.device.runtime_pool import STATE, ModelState, RuntimePool
from odt_sim.errors import ModelError
from odt_sim.model.names import full, parts
from odt_sim.model.trainable import TrainableModel


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
    by_signature: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    rows: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add_steps(self, signature: str, steps: int, rows: int) -> None:
        """Count training steps and the examples of all these steps."""
        self.train += steps
        self._add(signature, steps, rows)

    def add_inference(self, signature: str, calls: int, rows: int) -> None:
        """Count calls of inference or embedding and the examples of all these calls."""
        self.infer += calls
        self._add(signature, calls, rows)

    def _add(self, signature: str, calls: int, rows: int) -> None:
        self.by_signature[signature] += calls
        self.rows[signature] += rows


class Inference:
    """Runs a device's `infer`, `embed` and `head_infer`, and counts the calls.

    Attributes:
        model: The model.
    """

    def __init__(self, device: int, state: ModelState, pool: RuntimePool, calls: Calls) -> None:
        """Use a device's state; run nothing yet.

        Args:
            device: The device's id.
            state: The device's weights.
            pool: The pool that caches the device's embeddings.
            calls: The counter to increase.
        """
        self.model = pool.model
        self._device, self._state, self._pool, self._calls = device, state, pool, calls
        self._embedded: dict[str, str] = {}  # by split, the body whose embeddings were counted

    def outputs(self, signature: str, x: Rows) -> Rows:
        """Return the outputs `[rows, ...]` of a signature for `x` `[rows, ...]`."""
        return self.answers(signature, x)[0]

    def answers(self, signature: str, x: Rows) -> tuple[Rows, dict[str, Array]]:
        """Return the outputs of a signature, and the masks by output name."""
        self._calls.add_inference(signature, _call_count(self.model, signature, len(x)), len(x))
        returned = self._run(signature, x)
        return self._main(signature, returned), parts(returned, "mask") if self.model.masks else {}

    def call(self, signature: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run any signature, which may change weights and slots, and return its outputs."""
        outputs = self._state.runtime(changes=STATE).run(signature, **inputs)
        self._calls.add_inference(signature, 1, 0)
        return outputs

    def losses(self, x: Rows, y: Rows, outputs: Rows, masks: Mapping[str, Array]) -> dict[str, Array]:
        """Return each example's loss, see `losses_of`."""
        return losses_of(self._runtime("loss"), x, y, outputs, masks)

    def embedded(self, split: str, examples: Examples) -> Examples:
        """Return a split with embeddings as `x`; compute them once per body."""
        body = digest_of_body(self._state.body)
        if self._embedded.get(split) != body:
            calls = _call_count(self.model, "embed", len(examples))
            self._calls.add_inference("embed", calls, len(examples))
            self._embedded[split] = body
        embeddings = self._pool.embeddings.get(
            self._device, split, examples, body, lambda: self._embeddings(examples.take()[0])
        )
        return examples.with_embeddings(embeddings)

    def _embeddings(self, x: Rows) -> Array:
        return only(self._main("embed", self._run("embed", x)), "the embedding", "export it with one")

    def _main(self, signature: str, returned: Mapping[str, Array]) -> Rows:
        """Return the main outputs among the outputs of a signature."""
        return rows_of({name: returned[output] for name, output in self.model.main_outputs(signature).items()})

    def _run(self, signature: str, x: Rows) -> dict[str, Array]:
        return _batches(self._runtime(signature), signature, inputs_of(self.model, signature, x))

    def _runtime(self, signature: str) -> Runtime:
        """Return a runtime with the device's state, which a signature that draws numbers or counts changes."""
        return self._state.runtime(changes=self.model.changes[signature], head=signature == "head_infer")


def losses_of(runtime: Runtime, x: Rows, y: Rows, outputs: Rows, masks: Mapping[str, Array]) -> dict[str, Array]:
    """Return each example's loss, `[rows]`, from the signature `loss`: the sum as `""`, and that of each named output.

    Args:
        runtime: The model.
        x: `[rows, ...]`.
        y: `[rows, ...]`.
        outputs: The outputs of `infer` for these rows.
        masks: The masks by output name.
    """
    given = prefixed("x", x) | prefixed("y", targets_of(runtime.model, y)) | prefixed("logits", outputs)
    given |= {full("mask", name): mask for name, mask in masks.items()}
    inputs = runtime.model.signatures["loss"].inputs
    # A predictor's answers are float64.
    taken = {name: np.asarray(given[name], tensor.dtype) for name, tensor in inputs.items()}
    returned = _batches(runtime, "loss", taken)
    return {name.removeprefix("losses").removeprefix("_"): losses for name, losses in returned.items()}


def _batches(runtime: Runtime, signature: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs of a signature for rows, computed batch by batch."""
    rows = len(next(iter(inputs.values())))
    size, fixed = _call_size(runtime.model, signature)
    outputs: dict[str, Array] = {}
    for start in range(0, rows, size):
        batch = {name: array[start : start + size] for name, array in inputs.items()}
        given = {name: padded(array, size) for name, array in batch.items()} if fixed else batch
        for name, array in runtime.run(signature, **given).items():
            if not start:
                outputs[name] = np.empty((rows, *array.shape[1:]), array.dtype)
            outputs[name][start : start + size] = array[: rows - start]
    if rows:
        return outputs
    declared = runtime.model.signatures[signature].outputs
    return {name: np.zeros((0, *tensor.shape[1:]), tensor.dtype) for name, tensor in declared.items()}


def _call_count(model: TrainableModel, signature: str, rows: int) -> int:
    return math.ceil(rows / _call_size(model, signature)[0])


def _call_size(model: TrainableModel, signature: str) -> tuple[int, bool]:
    """Return the rows of one call, and whether each call needs exactly that many.

    Raises:
        ModelError: The file has no such signature.
    """
    if signature not in model.signatures:
        raise ModelError(
            f"{model.where}: has no signature {signature!r}; export the model with it, for example by "
            f"needs = frozenset({{{signature!r}}}) of the strategy"
        )
    rows = next(iter(model.signatures[signature].inputs.values())).shape[0]
    return (rows, True) if rows > 0 else (model.batch_size, False)
