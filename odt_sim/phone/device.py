"""Device of the fleet that is a phone, with its examples and model in a browser."""

from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.store.columns import Array, Rows, only, prefixed
from odt_sim.device.batches import Batch, Positions, cut
from odt_sim.device.device import Device
from odt_sim.device.examples import Examples, targets_of
from odt_sim.device.further_inputs import FurtherInputs
from odt_sim.device.parts import Parts
from odt_sim.device.plan import TrainingPlan
from odt_sim.device.runtime_pool import RuntimePool
from odt_sim.device.scoring import Calls, Correction, Scored
from odt_sim.device.training import GradientOffset, Passes, Step
from odt_sim.errors import DataError, ModelError
from odt_sim.metrics.losses import ONLY_IN_STEPS
from odt_sim.model.contract.manifest import NO_LOSS
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Layout, Weights
from odt_sim.phone import phones
from odt_sim.phone.runtime import Ask, PhoneRuntime

ON_PHONE = "the examples are on a phone, which does not send them; choose another strategy or backend"
ONLY_STEPS = "phones only train and evaluate; choose another strategy or backend"


class PhoneExamples(Examples):
    """Examples that stay on a phone; only their number is known here."""

    @classmethod
    def counted(cls, count: int) -> "PhoneExamples":
        """Return examples with a given number."""
        nothing = np.zeros(0, np.float32)
        return cls(nothing, nothing, np.arange(count))

    def take(self, order: NDArray[np.int64] | None = None) -> tuple[Array, Array]:
        """Raise an error, since examples stay on the phone.

        Raises:
            DataError: Always.
        """
        raise DataError(ON_PHONE)


class PhonePool:
    """One interpreter in this process for what phones do not run, shared by devices in several threads.

    Attributes:
        pool: The pool with the interpreter.
    """

    def __init__(self, model: TrainableModel) -> None:
        """Start the interpreter."""
        self.pool = RuntimePool(model, edits=False)
        self._one_at_a_time = Lock()
        _ = self.pool.first

    def scheduled_rate(self, step: int) -> float:
        """Return the learning rate of a step from the model's signature `schedule`."""
        with self._one_at_a_time:
            return self.pool.scheduled_rate(step)

    def finalized(self, weights: Weights, slots: Sequence[Array]) -> Weights:
        """Return the weights after the signature `finalize`."""
        runtime = self.pool.first
        with self._one_at_a_time:
            runtime.write(weights)
            runtime.write_slots(slots)
            runtime.finalize()
            return runtime.read()


def phone_device(
    examples: phones.Examples, ask: Ask, pool: PhonePool, *, seed: int, id: int, round: int, plan: TrainingPlan
) -> Device:
    """Return a device that trains and evaluates in a browser; only weights, slots, losses and metrics travel.

    Args:
        examples: The numbers of the phone's examples.
        ask: A function that sends the phone a request.
        pool: The interpreter of the model in this process.
        seed: The run's seed.
        id: The device's number.
        round: The current round.
        plan: The default plan.
    """
    model, runtime, calls = pool.pool.model, pool.pool.first, Calls()
    state = PhoneState(PhoneRuntime(model, ask), runtime.initial, runtime.initial_slots)
    steps, scoring = PhoneSteps(id, state, pool), PhoneScoring(id, state, calls)
    parts = Parts(state, steps, scoring, calls, runtime.initial, runtime.initial_slots)
    train, validation = PhoneExamples.counted(examples.train), PhoneExamples.counted(examples.validation)
    return Device(model, train, validation, seed=seed, id=id, round=round, plan=plan, parts=parts)


class PhoneState:
    """Weights and slots of a device, in this process or on its phone."""

    def __init__(self, phone: PhoneRuntime, weights: Weights, slots: Sequence[Array]) -> None:
        """Keep the state in this process until the device runs."""
        self.model, self._phone = phone.model, phone
        self._weights, self._slots = weights, slots
        self._is_here, self._is_there = True, False  # where the current values are

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

    def replace(self, weights: Weights, slots: Sequence[Array], *, same_body: bool = False) -> None:
        """Set weights and slots; the phone receives them when the device next runs."""
        weights.vector.flags.writeable = False
        self._weights, self._slots = weights, slots
        self._is_here, self._is_there = True, False

    def replace_head(self, weights: Weights) -> None:
        """Set some of the head's weights; everything else stays unchanged."""
        self.replace(self.weights.replace(weights), self.slots)

    def release(self) -> None:
        """Make the next run of the device write the state again."""
        self._is_there = False

    def on_phone(self, *, changes: bool = False) -> PhoneRuntime:
        """Write this state to the phone's copy if needed, and return the copy; set `changes` before a change."""
        if not self._is_there:
            self._phone.write(self._weights, self._slots)
            self._is_there = True
        if changes:
            self._is_here = False
        return self._phone

    def _fetch(self) -> None:
        if not self._is_here:
            self._weights, self._slots = self._phone.read()
            self._is_here = True


class PhoneSteps:
    """Runs the steps of a device on its phone; see `odt_sim.device.training.Steps`."""

    def __init__(self, id: int, state: PhoneState, pool: PhonePool) -> None:
        """Use a device's state; run nothing yet.

        Args:
            id: The device's id.
            state: The device's weights and slots.
            pool: The interpreter in this process.
        """
        self._what, self._state, self._pool = f"device {id}", state, pool

    def batches(self, examples: Examples, order: Positions, further: FurtherInputs) -> Iterator[Batch]:
        """Yield batches with positions of examples as `x` and `y`."""
        if further.of_rows or further.constant:
            raise DataError(
                f"{self._what}: phones do not support further inputs of steps; choose another strategy, or backend=ray"
            )
        return cut(self._state.model, order, order)

    def run(self, step: Step, passes: Passes, rates: Sequence[float], offset: GradientOffset | None) -> list[float]:
        """Run steps and return their losses; a request has one rate."""
        examples, orders, further = passes
        batches = [batch for order in orders for batch in self.batches(examples, order, further)]
        if len(set(rates)) != 1:
            return [self.run_batch(step, batch, rate, offset) for batch, rate in zip(batches, rates, strict=True)]
        losses: list[float] = self._state.on_phone(changes=True).train(step, batches, rates[0], offset).tolist()
        return losses

    def run_batch(self, step: Step, batch: Batch, rate: float, offset: GradientOffset | None) -> float:
        """Run one step on a batch and return its loss."""
        if only(batch.x, "x", ON_PHONE).dtype != np.int64:  # rows of the caller, not positions of `batches`
            raise DataError(f"{self._what}: a phone trains on its own examples only; choose another strategy")
        [loss] = self._state.on_phone(changes=True).train(step, [batch], rate, offset).tolist()
        return float(loss)

    def finalize(self) -> None:
        """Set weights with moving averages to these averages, in this process."""
        slots = self._state.slots
        self._state.replace(self._pool.finalized(self._state.weights, slots), slots)

    def scheduled_rate(self, step: int) -> float:
        """Return the learning rate of a step from the model's signature `schedule`."""
        return self._pool.scheduled_rate(step)


class PhoneScoring:
    """Scores a device's model on its phone; see `odt_sim.device.scoring.Scoring`."""

    def __init__(self, id: int, state: PhoneState, calls: Calls) -> None:
        """Score nothing yet.

        Args:
            id: The device's id.
            state: The device's weights.
            calls: The counter to increase.
        """
        self._what, self._state, self._calls = f"device {id}", state, calls

    def figures(self, scored: Scored, train: Scored | None) -> dict[str, float]:
        """Return the metrics of a split, computed on the phone."""
        return self._figures(scored, only_loss=False)

    def loss(self, scored: Scored) -> float:
        """Return the mean loss of a split, computed on the phone."""
        if any(output.loss == NO_LOSS for output in self._state.model.outputs):
            raise ModelError(ONLY_IN_STEPS)
        return self._figures(scored, only_loss=True)["loss"]

    def _figures(self, scored: Scored, *, only_loss: bool) -> dict[str, float]:
        model, split, examples = self._state.model, scored.split, scored.examples
        sent: Mapping[str, Array] = {}
        if not isinstance(examples, PhoneExamples):  # examples of other devices, for measuring forgetting
            sent, split = tensors_of(model, *examples.take()), "given"
        phone = self._state.on_phone(changes=bool(model.changes["infer"]))
        figures, calls = phone.evaluate(split, len(examples), sent, only_loss=only_loss)
        self._calls.add_inference("infer", calls, len(examples))
        return figures

    def example_losses(self, scored: Scored) -> NoReturn:
        """Raise an error, since a phone sends no losses of examples."""
        raise DataError(f"{self._what}: {ON_PHONE}")

    def outputs(self, scored: Scored) -> NoReturn:
        """Raise an error, since a phone sends no outputs."""
        raise DataError(f"{self._what}: {ON_PHONE}")

    def embedded(self, split: str, examples: Examples) -> NoReturn:
        """Raise an error, since a phone sends no embeddings."""
        raise DataError(f"{self._what}: {ON_PHONE}")

    def infer(self, x: Rows, correction: Correction | None = None) -> NoReturn:
        """Raise an error, since a phone sends no outputs."""
        raise DataError(ONLY_STEPS)

    def call(self, signature: str, inputs: Mapping[str, Array]) -> NoReturn:
        """Raise an error, since a phone runs no other signatures."""
        raise DataError(ONLY_STEPS)


def tensors_of(model: TrainableModel, x: Rows, y: Rows) -> dict[str, Array]:
    """Return examples in the form that a phone needs.

    Args:
        model: The model.
        x: `[examples, ...]`.
        y: `[examples, ...]` labels or targets.
    """
    declared = model.signatures["infer"].inputs
    inputs = {name: np.asarray(array, declared[name].dtype) for name, array in prefixed("x", x).items()}
    return inputs | prefixed("y", targets_of(model, y))
