"""Device of the fleet that is a phone, with its examples and model in a browser."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.columns import Array, Rows, prefixed
from odt_sim.device.batches import Batch, cut, targets_of
from odt_sim.device.device import Device
from odt_sim.device.examples import Examples
from odt_sim.device.further_inputs import NONE, FurtherInputs
from odt_sim.device.plan import TrainingPlan
from odt_sim.device.training_step import Step, step_for
from odt_sim.errors import DataError, ModelError
from odt_sim.metrics.losses import ONLY_IN_STEPS
from odt_sim.model.manifest import NO_LOSS
from odt_sim.model.trainable import TrainableModel
from odt_sim.phone import phones
from odt_sim.phone.runtime import Ask, PhonePool, PhoneRuntime, PhoneState


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


ON_PHONE = "the examples are on a phone, which does not send them; choose another strategy or backend"


class PhoneDevice(Device):
    """Device that trains and evaluates in a browser; only weights, slots, losses and metrics travel."""

    _pool: PhonePool
    _model_state: PhoneState

    def __init__(
        self,
        model: TrainableModel,
        examples: phones.Examples,
        ask: Ask,
        pool: PhonePool,
        *,
        seed: int,
        id: int,
        round: int,
        plan: TrainingPlan,
    ) -> None:
        """Create a device with the model's initial weights.

        Args:
            model: The model.
            examples: The numbers of the phone's examples.
            ask: A function that sends the phone a request.
            pool: The interpreter in this process.
            seed: The run's seed.
            id: The device's number.
            round: The current round.
            plan: The default plan.
        """
        train, validation, self.own_test = map(PhoneExamples.counted, examples)
        self._phone = PhoneRuntime(model, ask)
        super().__init__(model, train, validation, seed=seed, id=id, round=round, plan=plan, pool=pool)

    def _new_state(self, slots: Sequence[Array]) -> PhoneState:
        return PhoneState(self._pool, self._phone, self.initial, slots)

    def _further(self, inputs: Mapping[str, Any] | None) -> FurtherInputs:
        if inputs:
            raise DataError(
                f"device {self.id}: phones do not support further inputs of steps; choose another strategy, or backend=ray"
            )
        return NONE

    def _rows_of(self, step: Step) -> Examples:
        return self.train_examples

    def _shuffled(
        self, rows: Examples, purpose: str, epoch: int, examples: int, further: FurtherInputs = NONE
    ) -> Iterator[Batch]:
        """Yield batches with positions of examples as `x` and `y`."""
        order = self._order(purpose, epoch, examples)
        return cut(self.model, order, order)

    def _train(self, step: Step, plan: TrainingPlan, further: FurtherInputs, rate: float | None) -> list[float]:
        return self._steps(step, self._next_batches(step, plan, further), rate)

    def _steps(self, step: Step, batches: Iterable[Batch], rate: float | None) -> list[float]:
        if rate is not None:
            return self._at_one_rate(step, list(batches), rate)
        # A request has one rate.
        return [loss for batch in batches for loss in self._at_one_rate(step, [batch], self.learning_rate())]

    def _at_one_rate(self, step: Step, batches: Sequence[Batch], learning_rate: float) -> list[float]:
        losses = self._model_state.on_phone(changes=True).train(step, batches, learning_rate, self._offset)
        self.calls.add_steps(step.signature, len(batches), sum(batch.examples for batch in batches))
        self._steps_done += len(losses)
        return [float(loss) for loss in losses]

    def finish(self) -> None:
        """Finish training like Keras' `fit`, in this process; see `Device.finish`."""
        if self.model.finalizes and self._steps_done:
            slots = self._model_state.slots
            self._replace(self._pool.finalized(self.weights, slots), slots)

    def train_step(self, batch: Batch, learning_rate: float | None = None, group: str | None = None) -> float:
        """Run one step on a batch of `batches` and return its loss."""
        [loss] = self._steps(step_for(self.model, group), [batch], self._constant_rate(learning_rate))
        return loss

    def train_batch(self, x: Any, y: Any, learning_rate: float | None = None, group: str | None = None) -> float:
        """Raise an error, since a phone trains only on its own examples."""
        raise DataError(f"device {self.id}: a phone trains on its own examples only; choose another strategy")

    def outputs(self, split: str) -> Rows:
        """Raise an error, since a phone sends no outputs."""
        raise DataError(f"device {self.id}: {ON_PHONE}")

    def embedded(self, split: str) -> Examples:
        """Raise an error, since a phone sends no embeddings."""
        raise DataError(f"device {self.id}: {ON_PHONE}")

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """Return the metrics of a split, computed on the phone."""
        return self._figures(split, only_loss=False)

    def loss(self, split: str) -> float:
        """Return the mean loss of a split, computed on the phone."""
        if any(output.loss == NO_LOSS for output in self.model.outputs):
            raise ModelError(ONLY_IN_STEPS)
        return self._figures(split, only_loss=True)["loss"]

    def _figures(self, split: str, *, only_loss: bool) -> dict[str, float]:
        examples = self._split(split)
        if not len(examples):
            raise DataError(f"device {self.id}: has no {split} examples; provide some")
        given: Mapping[str, Array] = {}
        if not isinstance(examples, PhoneExamples):  # examples of other devices, for measuring forgetting
            given, split = tensors_of(self.model, *examples.take()), "given"
        phone = self._model_state.on_phone(changes=bool(self.model.changes["infer"]))
        figures, calls = phone.evaluate(split, len(examples), given, only_loss=only_loss)
        self.calls.add_inference("infer", calls, len(examples))
        return figures


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
