"""Model on a phone, used instead of an interpreter in this process."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.columns import Array
from odt_sim.device.batches import Batch
from odt_sim.device.runtime import Runtime
from odt_sim.device.runtime_pool import ModelState, RuntimePool
from odt_sim.device.training_step import GradientOffset, Step
from odt_sim.errors import DataError
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Layout, Weights
from odt_sim.phone.figures import checked_figures
from odt_sim.phone.frames import Message
from odt_sim.phone.phones import PhoneError

Ask = Callable[[Mapping[str, Any], Mapping[str, Array]], Message]
"""A function that sends a phone a header and tensors, and returns its reply."""


class PhoneRuntime:
    """A phone's copy of the model, with weights and optimizer slots, and its work on the phone's examples."""

    def __init__(self, model: TrainableModel, ask: Ask) -> None:
        """Set the model and the function that sends requests to the phone."""
        self.model, self._ask = model, ask

    def write(self, weights: Weights, slots: Sequence[Array]) -> None:
        """Set the weights and the optimizer's slots."""
        named = {f"s{i}": slot for i, slot in enumerate(slots)}
        self._ask({"do": "write"}, {"weights": weights.vector, **named})

    def read(self) -> tuple[Weights, list[Array]]:
        """Return the weights, read-only, and the optimizer's slots.

        Raises:
            PhoneError: They do not belong to this model.
        """
        reply = self._ask({"do": "read"}, {})
        vector = _checked(reply, "weights", (self.model.layout.size,), "float32")
        slots = [_checked(reply, f"s{i}", slot.shape, slot.dtype) for i, slot in enumerate(self.model.slots)]
        return Weights(self.model.layout, vector), slots

    def train(
        self, step: Step, batches: Iterable[Batch], learning_rate: float, offset: GradientOffset | None
    ) -> NDArray[np.float32]:
        """Run a step on each batch and return the losses, `[steps]`.

        Args:
            step: The training signature.
            batches: Positions of the training examples as `x` and `y`.
            learning_rate: The step size.
            offset: The gradient offset; None for none.
        """
        steps = list(batches)
        if not steps:
            return np.zeros(0, np.float32)
        header = {
            "do": "train",
            "signature": step.signature,
            "learning_rate": float(np.float32(learning_rate)),
            "mu": float(np.float32(offset.mu)) if offset else 0.0,
            "trained": [name in step.trained.slices for name in self.model.trainable_layout.names],
        }
        tensors: dict[str, Array] = {
            "rows": np.concatenate([batch.x for batch in steps]).astype(np.int32),
            "sample_weight": np.concatenate([batch.sample_weight for batch in steps]),
            "sizes": np.array([len(batch.x) for batch in steps], np.int32),
        }
        reply = self._ask(header, tensors | ({"b": offset.b.vector} if offset else {}))
        return _checked(reply, "losses", (len(steps),), "float32")

    def evaluate(
        self, split: str, examples: int, given: Mapping[str, Array], *, only_loss: bool
    ) -> tuple[dict[str, float], int]:
        """Return metrics, and the number of batches that were evaluated.

        Args:
            split: `train`, `validation` or `test`, or `given` for the examples `x` and `y` that are sent.
            examples: The number of examples of the split.
            given: The examples to send.
            only_loss: Whether to request only the loss.

        Raises:
            PhoneError: The reply has no valid metrics for this model and split.
        """
        reply = self._ask({"do": "evaluate", "split": split, "only_loss": only_loss}, given)
        calls = reply.header.get("calls")
        if type(calls) is not int or not 1 <= calls <= examples:
            raise PhoneError("phone sent a wrong number of batches for its metrics")
        return checked_figures(reply.header.get("figures"), self.model, examples, only_loss=only_loss), calls


def _checked(reply: Message, name: str, shape: tuple[int, ...], dtype: str) -> Array:
    """Return a tensor of a reply.

    Raises:
        PhoneError: It is missing, or its shape or dtype is wrong.
    """
    found = reply.tensors.get(name)
    if found is None or found.shape != shape or found.dtype != np.dtype(dtype):
        what = "nothing" if found is None else f"{found.dtype} {list(found.shape)}"
        raise PhoneError(f"phone sent {name} of another model: expected {dtype} {list(shape)}, found {what}")
    return found


class PhonePool(RuntimePool):
    """One interpreter in this process for what phones do not run, shared by devices in several threads."""

    def __init__(self, model: TrainableModel) -> None:
        """Start the interpreter."""
        super().__init__(model, edits=False)
        self._one_at_a_time = Lock()
        _ = self.first

    def scheduled_rate(self, step: int) -> float:
        """Return the learning rate of a step from the model's signature `schedule`."""
        with self._one_at_a_time:
            return super().scheduled_rate(step)

    def finalized(self, weights: Weights, slots: Sequence[Array]) -> Weights:
        """Return the weights after the signature `finalize`."""
        with self._one_at_a_time:
            self.first.write(weights)
            self.first.write_slots(slots)
            self.first.finalize()
            return self.first.read()


class PhoneState(ModelState):
    """Weights and slots of a device, in this process or on its phone."""

    def __init__(self, pool: RuntimePool, phone: PhoneRuntime, weights: Weights, slots: Sequence[Array]) -> None:
        """Keep the state in this process until the device runs."""
        super().__init__(pool, weights, slots)
        self._phone, self._written = phone, False

    @property
    def weights(self) -> Weights:
        """All weights, read-only."""
        self._fetch()
        return self._weights

    @property
    def slots(self) -> Sequence[Array]:
        """The optimizer's slots; do not write to them."""
        self._fetch()
        return self._slots

    def select(self, layout: Layout) -> Weights:
        """Return a copy of some weights."""
        return self.weights.select(layout)

    def change_since(self, before: Weights) -> Weights:
        """Return the values of the parameters of `before` minus `before`; no interpreter here has the state."""
        return self.select(before.layout) - before

    def replace_head(self, weights: Weights) -> None:
        """Replace some of the head's weights."""
        self.replace(self.weights.replace(weights), self.slots, same_body=True)

    def runtime(self, *, changes: Collection[str] = (), head: bool = False) -> Runtime:
        """Raise an error, since no interpreter in this process has the state.

        Raises:
            DataError: Always.
        """
        raise DataError("phones only train and evaluate; choose another strategy or backend")

    def on_phone(self, *, changes: bool = False) -> PhoneRuntime:
        """Write this state to the phone's copy if needed, and return the copy; set `changes` before a change."""
        if not self._written:
            self._phone.write(self._weights, self._slots)
            self._written = True
        if changes:
            self._weights_current, self._body = False, None
        return self._phone

    def release(self) -> None:
        """Make the next run of the device write the state again."""
        self._written = False

    def _fetch(self) -> None:
        if not self._weights_current:
            self._weights, self._slots = self._phone.read()
            self._weights_current = True
