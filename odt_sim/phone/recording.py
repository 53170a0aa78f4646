"""Recorded calls of a model's signatures, which a phone repeats and compares, and their time in Python."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from odt_sim.data.store.columns import prefixed
from odt_sim.device.batches import Batch
from odt_sim.device.runtime import Runtime, inputs_of
from odt_sim.fleet.profile import Timing
from odt_sim.model.weights import Array
from odt_sim.phone.subject import Subject

OFFSET, MU = 0.01, 0.1
"""Gradient offset of every weight, and factor of the proximal term, in the recorded step that uses them."""
WARM_UP, FEWEST, MOST = 5, 5, 500
"""Calls before the time is measured, and the fewest and the most calls that are measured."""
SECONDS = 1.0
SMALLER = 0.1
"""Factor of the learning rate in recorded steps, since large steps on few examples amplify rounding errors."""


@dataclass(frozen=True)
class Recording:
    """Calls of one interpreter, in order.

    Attributes:
        calls: The signature of each call, and its inputs and outputs by name: dtype, shape, and the offset of the
            values in `values`, in bytes.
        values: The values of all tensors, little-endian.
    """

    calls: tuple[Mapping[str, Any], ...]
    values: bytes

    def to_json(self) -> str:
        """Return the calls as JSON."""
        return json.dumps(self.calls)


def record(subject: Subject) -> Recording:
    """Call every signature of a model, and record inputs and outputs.

    The calls are inference, a training step on each batch, the losses of examples, and steps of every further training
    signature, with a gradient offset and on embeddings, if the model supports these. The state is read in
    between. At the end, it is restored, and one more step is trained.

    Raises:
        ModelError: LiteRT cannot run the file.
    """
    recorder = _Recorder(subject)
    model, first = subject.model, subject.batches[0]
    initial = recorder.state()
    recorder.call("infer", inputs_of(model, "infer", first.x))
    for batch in subject.batches:
        recorder.train("train", batch)
    recorder.state()
    answers = recorder.call("infer", inputs_of(model, "infer", first.x))
    if model.returns_losses:
        values = answers | prefixed("x", first.x) | prefixed("y", first.y)
        recorder.call("loss", {name: values[name] for name in model.signatures["loss"].inputs})
    for name in sorted(name for name in model.signatures if name.startswith("train_")):
        recorder.train(name, first)
    if "set_gradient_offset" in model.signatures:
        offsets = model.signatures["set_gradient_offset"].inputs
        for factor in (OFFSET, 0.0):
            values = {name: np.full(tensor.shape, factor, np.float32) for name, tensor in offsets.items()}
            recorder.call("set_gradient_offset", values)
            recorder.train("train", first)
    if model.embeds:
        embedding = recorder.call("embed", inputs_of(model, "embed", first.x))["embedding"]
        recorder.call("head_infer", {"embedding": embedding})
        recorder.train("head_train", first._replace(x=embedding))
    recorder.state()
    recorder.restore(initial)
    recorder.train("train", first)
    return Recording(tuple(recorder.calls), bytes(recorder.values))


def training_inputs(subject: Subject, signature: str, batch: Batch, mu: float = MU) -> dict[str, Array]:
    """Return the inputs of a training signature for one batch."""
    values = {
        **prefixed("x", batch.x),
        "embedding": batch.x,
        **prefixed("y", batch.y),
        "sample_weight": batch.sample_weight,
        "learning_rate": np.float32(SMALLER * (subject.learning_rate or 0)),
        "mu": np.float32(mu),
        **{name: declared.filled(len(batch.x)) for name, declared in subject.model.train_inputs.items()},
    }
    return {name: np.asarray(values[name]) for name in subject.model.signatures[signature].inputs}


class _Recorder:
    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.runtime = Runtime(subject.model)
        self.calls: list[Mapping[str, Any]] = []
        self.values = bytearray()

    def call(self, signature: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        outputs = self.runtime.call(signature, **inputs)
        self.calls.append({"signature": signature, "inputs": self._stored(inputs), "outputs": self._stored(outputs)})
        return outputs

    def train(self, signature: str, batch: Batch) -> None:
        self.call(signature, training_inputs(self.subject, signature, batch))

    def state(self) -> tuple[dict[str, Array], dict[str, Array]]:
        slots = self.call("optimizer_state", {}) if self.subject.model.slots else {}
        return self.call("parameters", {}), slots

    def restore(self, state: tuple[dict[str, Array], dict[str, Array]]) -> None:
        weights, slots = state
        self.call("restore", weights)
        if slots:
            self.call("restore_optimizer_state", slots)
        self.state()

    def _stored(self, tensors: Mapping[str, Array]) -> dict[str, Any]:
        stored = {}
        for name, array in ((name, np.asarray(tensor)) for name, tensor in tensors.items()):
            self.values.extend(bytes(-len(self.values) % 8))  # typed arrays begin at multiples of their element size
            stored[name] = {"dtype": str(array.dtype), "shape": list(array.shape), "start": len(self.values)}
            self.values.extend(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes())
        return stored


def measure(subject: Subject) -> dict[str, Timing]:
    """Return the timings of `train` and `infer` with a full batch in Python on this machine, measured as on a phone.

    Raises:
        ModelError: LiteRT cannot run the file.
    """
    runtime, batch = Runtime(subject.model), subject.batches[0]
    inputs = training_inputs(subject, "train", batch, mu=0.0)
    rows = inputs_of(subject.model, "infer", batch.x)
    return {
        "train": _timed(lambda: runtime.call("train", **inputs), len(batch.x)),
        "infer": _timed(lambda: runtime.call("infer", **rows), len(batch.x)),
    }


def _timed(call: Callable[[], object], rows: int) -> Timing:
    for _ in range(WARM_UP):
        call()
    milliseconds: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(milliseconds) < FEWEST or (time.perf_counter() < end and len(milliseconds) < MOST):
        start = time.perf_counter()
        call()
        milliseconds.append(1000 * (time.perf_counter() - start))
    lower, median, upper = np.quantile(milliseconds, (0.25, 0.5, 0.75)).tolist()
    return Timing(rows, median, lower, upper, len(milliseconds))
