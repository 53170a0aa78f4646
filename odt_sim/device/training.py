"""Local training: the steps of a device, their batches, learning rates and gradient offsets.

A gradient offset makes a step use `g + mu w + b` instead of the gradient `g`. With `b = -mu w_ref` this is the proximal
term of FedProx, Ditto and pFedMe; with `b = c - c_i` it is SCAFFOLD's correction; FedDyn combines both.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from odt_sim._support.checks import shown
from odt_sim.device.batches import Batch, Positions, batches, stacked_batches
from odt_sim.device.examples import Examples
from odt_sim.device.further_inputs import NONE, SAMPLE_WEIGHT, FurtherInputs
from odt_sim.device.plan import TrainingPlan, check_plan, learning_rate_of
from odt_sim.device.random import generator_for
from odt_sim.device.runtime import Runtime
from odt_sim.device.runtime_pool import STATE, ModelState, RuntimePool
from odt_sim.device.scoring import Calls, EngineScoring
from odt_sim.errors import ConfigurationError, ModelError
from odt_sim.model.contract.manifest import GROUPS
from odt_sim.model.contract.signatures import parts_of
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Layout, Weights


class Step(NamedTuple):
    """A training signature and the parameters that it changes.

    Attributes:
        signature: `train`, `train_<group>`, or `head_train`, which takes embeddings instead of `x`.
        trained: The trainable parameters that it changes.
    """

    signature: str
    trained: Layout

    @property
    def on_embeddings(self) -> bool:
        """Whether it trains on embeddings of the examples."""
        return self.signature == "head_train"


@lru_cache(32)
def step_for(model: TrainableModel, group: str | None = None) -> Step:
    """Return the step that trains a whole model or one group; the head trains on embeddings where possible.

    Args:
        model: The model.
        group: `head`, `body`, `norm`, or several joined by `_`; None for all trainable parameters.

    Raises:
        ModelError: The model cannot train this group alone.
    """
    parts = GROUPS if group is None else parts_of(group)
    if not parts:
        raise ModelError(
            f"{model.where}: unknown parameter group {group!r}; expected {', '.join(GROUPS)}, or several joined by _"
        )
    trained = model.trainable_layout.select(lambda p: p.group in parts)
    only_head = group == "head" or model.all_moves_in(("head",))
    if only_head and model.embeds and "head" in parts:
        return Step("head_train", trained)
    if f"train_{group}" in model.signatures:
        return Step(f"train_{group}", trained)
    if not model.all_moves_in(parts):
        groups = [name.removeprefix("train_") for name in sorted(model.capabilities) if name.startswith("train_")]
        raise ModelError(
            f"{model.where}: cannot train only group {group!r} (it can train {', '.join(groups) or 'all at once'}); "
            f"export it with train_groups=[{group!r}]"
        )
    return Step("train", trained)


@dataclass(frozen=True, eq=False)
class GradientOffset:
    """The term `mu w + b` that is added to the gradients.

    Attributes:
        b: A value for each trainable parameter.
        mu: The factor of the proximal term.
    """

    b: Weights
    mu: float

    @classmethod
    def checked(cls, model: TrainableModel, b: Weights | None, mu: float) -> "GradientOffset | None":
        """Return an offset with a copy of `b` (None for zero); None if nothing is added.

        Raises:
            ConfigurationError: `mu` is not finite.
            ModelError: The model's steps take no offset, or `b` does not contain the trainable parameters.
        """
        if not (isinstance(mu, int | float | np.number) and math.isfinite(mu)):
            raise ConfigurationError(f"gradient offset: expected a finite mu, found {shown(mu)}")
        if b is None and mu == 0:
            return None
        if "gradient_offset" not in model.capabilities:
            raise ModelError(
                f"{model.where}: its steps do not support a gradient offset, since they are not plain w - "
                "learning_rate * gradient; export it with gradient_offset=True"
            )
        layout = model.trainable_layout
        if b is None:
            return cls(Weights.zeros(layout), float(mu))
        if b.layout != layout:
            raise ModelError(
                f"{model.where}: a gradient offset consists of the {len(layout.names)} trainable parameters, {layout.size} "
                f"floats; found {len(b.layout.names)} of {b.layout.size}; select the model's trainable_layout"
            )
        return cls(Weights(layout, b.vector.copy()), float(mu))


class Steps(Protocol):
    """Runs the steps of a device: `EngineSteps` in this process, others on a phone."""

    def batches(self, examples: Examples, order: Positions, further: FurtherInputs) -> Iterator[Batch]:
        """Yield the batches of examples in an order, for `run_batch`."""

    def run(self, step: Step, passes: "Passes", rates: Sequence[float], offset: GradientOffset | None) -> list[float]:
        """Run steps and return their losses.

        Args:
            step: The step.
            passes: The passes over the examples.
            rates: The learning rate of each step.
            offset: The gradient offset; None for none.
        """

    def run_batch(self, step: Step, batch: Batch, rate: float, offset: GradientOffset | None) -> float:
        """Run one step on a batch and return its loss."""

    def finalize(self) -> None:
        """Set weights with moving averages to these averages."""

    def scheduled_rate(self, step: int) -> float:
        """Return the learning rate of a step from the model's signature `schedule`."""


class Passes(NamedTuple):
    """Passes over examples.

    Attributes:
        examples: The training examples.
        orders: The positions of each pass, drawn one after another.
        further: Values of the model's further training inputs.
    """

    examples: Examples
    orders: Iterator[Positions]
    further: FurtherInputs


class Local(NamedTuple):
    """What a device trains on: the round, the plan and the examples."""

    round: int
    plan: TrainingPlan
    examples: Examples


class Training:
    """Trains a device: draws its batches, and counts its steps and epochs.

    It has no reference to the device: a cycle would keep the device's weights until the next garbage collection.

    Attributes:
        epochs: The epochs trained in the round.
        steps: The steps trained in the round.
        offset: The gradient offset of later steps; None for none.
    """

    def __init__(self, model: TrainableModel, steps: Steps, calls: Calls, *, seed: int, id: int, local: Local) -> None:
        """Train nothing yet.

        Args:
            model: The model.
            steps: Runs the steps.
            calls: The counter to increase.
            seed: The run's seed.
            id: The device's id.
            local: What the device trains on. A model's learning rate schedule counts its steps for each earlier round.

        Raises:
            ConfigurationError: The plan is not a `TrainingPlan`, or the seed, the id or the round is below 0.
        """
        check_plan(local.plan, id)
        if not all(isinstance(number, int | np.integer) and number >= 0 for number in (seed, id, local.round)):
            raise ConfigurationError(
                f"device {id}: expected whole numbers of at least 0 as seed, id and round, found {seed!r}, {id!r}, "
                f"{local.round!r}"
            )
        rounds_before = max(local.round - 1, 0)
        self._model, self._steps, self._calls = model, steps, calls
        self._seed, self._id = seed, id
        self._steps_before = rounds_before * local.plan.steps_of(len(local.examples), model.batch_size)
        self._orders: dict[tuple[str, int, int], Orders] = {}
        self.begin_again()

    def begin_again(self) -> None:
        """Return to the beginning of the round, without a gradient offset."""
        self.epochs = self.steps = 0
        self.offset: GradientOffset | None = None

    def train(
        self, local: Local, learning_rate: float | None, group: str | None, inputs: Mapping[str, Any] | None
    ) -> NDArray[np.float32]:
        """Run the steps of the plan and return their losses; see `Device.train`."""
        step, size, examples = step_for(self._model, group), self._model.batch_size, local.examples
        further, passes = self._further(inputs, examples), local.plan.passes(len(examples), size)
        rates = self._next_rates(local, learning_rate, local.plan.steps_of(len(examples), size))
        orders = (self._order("batches", local, self.epochs + i)[:count] for i, count in enumerate(passes))
        losses = self._steps.run(step, Passes(examples, orders, further), rates, self.offset)
        self._calls.add_steps(step.signature, len(rates), sum(passes))  # now, since the device may have failed
        self.epochs += len(passes)
        self.finish()
        return np.asarray(losses, np.float32)

    def finish(self) -> None:
        """Set weights with moving averages to these averages, if a step was run."""
        if self._model.finalizes and self.steps:
            self._steps.finalize()

    def batches(self, local: Local, purpose: str, inputs: Mapping[str, Any] | None) -> Iterator[Batch]:
        """Yield the batches of a plan; see `Device.batches`."""
        check_plan(local.plan, self._id)
        examples, further = local.examples, self._further(inputs, local.examples)
        for epoch, count in enumerate(local.plan.passes(len(examples), self._model.batch_size)):
            yield from self._steps.batches(examples, self._order(purpose, local, epoch)[:count], further)

    def train_step(self, local: Local, batch: Batch, learning_rate: float | None, group: str | None) -> float:
        """Run one step and return its loss; see `Device.train_step`."""
        step, [rate] = step_for(self._model, group), self._next_rates(local, learning_rate, 1)
        loss = self._steps.run_batch(step, batch, rate, self.offset)
        self._calls.add_steps(step.signature, 1, batch.examples)
        return loss

    def learning_rate(self, local: Local, rate: float | None = None, *, later: int = 0) -> float:
        """Return the learning rate of the next step, or of one that follows `later` steps after it."""
        step = self._steps_before + self.steps + later
        return learning_rate_of(
            self._model, local.plan, rate, f"device {self._id}", lambda: self._steps.scheduled_rate(step), local.round
        )

    def sum_of_rates(self, local: Local, steps: int) -> float:
        """Return the sum of the default learning rates of the last `steps` steps."""
        if not self._model.scheduled or local.plan.learning_rate is not None:
            return steps * self.learning_rate(local)
        return sum(self.learning_rate(local, later=i) for i in range(-steps, 0))

    def _next_rates(self, local: Local, rate: float | None, steps: int) -> list[float]:
        """Count steps and return their learning rates, which a model's schedule may change from step to step."""
        rates = [self.learning_rate(local, rate)] * steps
        if self._model.scheduled and rate is None:
            rates = [self.learning_rate(local, later=i) for i in range(steps)]
        self.steps += steps
        return rates

    def _further(self, inputs: Mapping[str, Any] | None, examples: Examples) -> FurtherInputs:
        if not inputs:
            return NONE
        if not isinstance(inputs, Mapping):
            raise ConfigurationError(
                f"device {self._id}: inputs: expected a mapping of names and values, found {shown(inputs)}; pass such as "
                "{'sample_weight': weights}"
            )
        return FurtherInputs.checked(self._model, inputs, len(examples), f"device {self._id}")

    def _order(self, purpose: str, local: Local, epoch: int) -> Positions:
        """Return the positions of all examples in the random order of an epoch."""
        key = purpose, local.round, len(local.examples)  # a strategy may replace a device's examples
        if key not in self._orders:
            self._orders[key] = Orders((self._seed, self._id, local.round, purpose, 0), len(local.examples))
        return self._orders[key].of(epoch)


class Orders:
    """The orders of a round's epochs, for one purpose.

    One generator draws them in turn, since making a generator takes longer than drawing an order.
    """

    def __init__(self, purpose: Sequence[str | int], examples: int) -> None:
        """Draw no order yet; `purpose` determines the generator, see `generator_for`."""
        self._purpose, self._examples = purpose, examples
        self._generator, self._next = generator_for(*purpose), 0

    def of(self, epoch: int) -> Positions:
        """Return the positions of all examples in the order of an epoch; repeated calls return the same order."""
        if epoch < self._next:
            self._generator, self._next = generator_for(*self._purpose), 0
        while True:  # more than once, for example, after a checkpoint within a round
            order = self._generator.permutation(self._examples)
            self._next += 1
            if self._next > epoch:
                return order


class EngineSteps:
    """Runs the steps of a device in an engine of this process; small models run several steps per call."""

    def __init__(self, state: ModelState, pool: RuntimePool, scoring: EngineScoring) -> None:
        """Use a device's state and the pool of its model; `scoring` embeds examples."""
        self._model, self._state, self._pool, self._scoring = pool.model, state, pool, scoring

    def batches(self, examples: Examples, order: Positions, further: FurtherInputs) -> Iterator[Batch]:
        """Yield the batches of examples in an order; see `Steps`."""
        return further.added(batches(self._model, *examples.take(order), further.rows(order)))

    def run(self, step: Step, passes: Passes, rates: Sequence[float], offset: GradientOffset | None) -> list[float]:
        """Run steps and return their losses; see `Steps`."""
        examples, orders, further = passes
        rows = self._scoring.embedded("train", examples) if step.on_embeddings else examples
        runtime, weights = self._runtime(step), further.of_rows.get(SAMPLE_WEIGHT)
        in_turn = chain.from_iterable(self.batches(rows, order, further) for order in orders)
        if offset is not None and self._on_host:
            return [_step_and_offset(runtime, step, *pair, offset) for pair in zip(in_turn, rates, strict=True)]
        sizes, signature, (b, mu) = runtime.steps_at_once(step.signature), step.signature, _terms(offset)
        if not sizes:
            return runtime.train(in_turn, rates, signature, b, mu)
        losses: list[float] = []
        while some := list(islice(orders, sizes[0])):  # whose steps are a multiple of the largest size
            for stack in stacked_batches(self._model, rows, some, weights, (*sizes, 1)):
                next_rates = rates[len(losses) : len(losses) + len(stack.positions)]
                if len(next_rates) > 1:
                    losses += runtime.train_at_once(stack, next_rates, signature, b, mu)
                else:
                    losses += runtime.train([stack.first()], next_rates, signature, b, mu)
        return losses

    def run_batch(self, step: Step, batch: Batch, rate: float, offset: GradientOffset | None) -> float:
        """Run one step on a batch and return its loss; see `Steps`."""
        if step.on_embeddings:
            batch = batch._replace(x=self._scoring.answers("embed", batch.x)[0])
        runtime = self._runtime(step)
        if offset is not None and self._on_host:
            return _step_and_offset(runtime, step, batch, rate, offset)
        [loss] = runtime.train([batch], [rate], step.signature, *_terms(offset))
        return loss

    def finalize(self) -> None:
        """Set weights with moving averages to these averages."""
        self._state.runtime(changes=STATE).finalize()

    def scheduled_rate(self, step: int) -> float:
        """Return the learning rate of a step from the model's signature `schedule`."""
        return self._pool.scheduled_rate(step)

    def _runtime(self, step: Step) -> Runtime:
        return self._state.runtime(changes=STATE, head=step.on_embeddings)

    @property
    def _on_host(self) -> bool:
        """Whether the host must add gradient offsets, because the model's steps do not take one."""
        return "set_gradient_offset" not in self._model.signatures


def _terms(offset: GradientOffset | None) -> tuple[Weights | None, float]:
    return (offset.b, offset.mu) if offset else (None, 0.0)


def _step_and_offset(runtime: Runtime, step: Step, batch: Batch, learning_rate: float, offset: GradientOffset) -> float:
    """Run one step, add the offset and return the step's loss.

    The host adds it after the step, `w <- w - r (mu w_before + b)`, on the parameters that the step trains. This is exact
    for plain SGD.
    """
    before = runtime.read().select(step.trained)
    [loss] = runtime.train([batch], [learning_rate], step.signature)
    after = runtime.read()
    change = (before * offset.mu + offset.b.select(step.trained)) * learning_rate
    runtime.write(after.replace(after.select(step.trained) - change))
    return loss
