"""One simulated device: a model, its state and its own data."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim._support.checks import names_arguments, shown
from odt_sim.data.columns import Array, Rows, rows_of
from odt_sim.device.batches import Batch, batches, prepared
from odt_sim.device.checkpoint import read_saved, write_checkpoint
from odt_sim.device.checks import check_metrics, check_model, check_numbers, check_plan, check_split, checked_pair
from odt_sim.device.evaluation import Correction, answers_of, corrected
from odt_sim.device.examples import Examples, check_ids, checked_inputs
from odt_sim.device.further_inputs import NONE, SAMPLE_WEIGHT, FurtherInputs, checked_call
from odt_sim.device.inference import Calls, Inference
from odt_sim.device.passes import Passes
from odt_sim.device.plan import TrainingPlan, learning_rate_of
from odt_sim.device.predictor import Predictor
from odt_sim.device.random import generator_for
from odt_sim.device.runtime import Runtime
from odt_sim.device.runtime_pool import STATE, ModelState, RuntimePool
from odt_sim.device.stacked_batches import StackedBatches, stacked_batches
from odt_sim.device.training_step import GradientOffset, Step, run_stack, run_steps, step_for, steps_at_once
from odt_sim.errors import ConfigurationError, DataError, ModelError
from odt_sim.metrics.device import model_example_losses, model_figures, model_loss
from odt_sim.metrics.own import OwnMetric, own_figures
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Layout, Weights

Pair = tuple[Any, Any]


class Device:
    """Trains, evaluates, saves and restores a trainable model on its own data.

    Devices may share interpreters; sharing changes no result.

    Attributes:
        model: The model.
        id: The device's number in the fleet.
        seed: The run's seed. Batch orders depend on the seed, the id, the round and the epoch within the round.
        round: The current round; 0 outside a simulation.
        plan: The default epochs or steps, and the default learning rate, of `train`.
        train_examples: The training examples, read-only.
        validation_examples: Examples for model selection; may be empty.
        test_examples: Examples for reported results; may be empty.
        state: What a strategy keeps on this device between rounds.
        records: Numbers of the strategy for the device's line in `devices.jsonl`, set by `deploy`.
        calls: The number of model calls.
        correction: A strategy's function of embeddings and outputs, each `[rows, ...]`, that returns corrected outputs;
            None for no correction.
        predictor: The deployed predictor that replaces the model; None for the model with the device's weights.
    """

    def __init__(
        self,
        model: TrainableModel,
        train: Pair | Examples,
        validation: Pair | Examples | None = None,
        test: Pair | Examples | None = None,
        *,
        seed: int = 0,
        id: int = 0,
        round: int = 0,
        plan: TrainingPlan | None = None,
        pool: RuntimePool | None = None,
        metrics: Sequence[OwnMetric] = (),
    ) -> None:
        """Create a device with the model's initial weights; see the attributes.

        Args:
            model: The model.
            train: Training examples: `(x, y)`, or checked `Examples`.
            validation: Examples for model selection.
            test: Examples for reported results.
            seed: The run's seed.
            id: The device's number.
            round: The current round.
            plan: The default plan; one epoch by default.
            pool: The interpreters to share with other devices of the model, `RuntimePool(model)`; a new pool by default.
            metrics: The user's own metrics, which `evaluate` adds to those of the task.

        Raises:
            ConfigurationError: The model is not a `TrainableModel`, the plan is not a `TrainingPlan`, or the seed, the
                id or the round is below 0.
            DataError: The examples do not fit the model.
            ModelError: LiteRT cannot load the model.
        """
        check_model(model, id)
        if plan is not None:
            check_plan(plan, id)
        check_numbers(seed, id, round)
        self.model, self.id, self.seed, self.round = model, id, seed, round
        self.plan = plan or TrainingPlan()
        self.train_examples = self._examples(train, "train")
        self.validation_examples = self._examples(validation, "validation")
        self.test_examples = self._examples(test, "test")
        if not len(self.train_examples):
            raise DataError(f"device {id}: expected at least 1 training example, found 0; leave the device out")
        self.state: dict[str, Weights | Array] = {}
        self.records: dict[str, float] = {}
        self.calls = Calls()
        self.correction: Correction | None = None
        check_metrics(metrics, id)
        self._own_metrics = metrics
        self.predictor: Predictor | None = None
        self._pool = pool or RuntimePool(model)
        self._model_state = self._new_state(self._initial_slots())
        self._inference = Inference(id, self._model_state, self._pool, self.calls)
        self._epochs = self._steps_done = 0
        self._passes = Passes(seed, id)
        rows = len(self.train_examples)
        self._first_step = max(round - 1, 0) * self.plan.steps_of(rows, model.batch_size)
        self._offset: GradientOffset | None = None

    def __reduce__(self) -> str:
        """Refuse to be pickled: an interpreter cannot be sent to another process.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            "a Device cannot be pickled, since it owns an interpreter; create it in the process that uses it"
        )

    def __repr__(self) -> str:
        """Return one line: the id, the model and the numbers of examples."""
        train, validation, test = map(len, (self.train_examples, self.validation_examples, self.test_examples))
        examples = f"{train} training, {validation} validation and {test} test examples"
        return f"{type(self).__name__}({self.id}: {self.model.name}, {examples})"

    def _examples(self, given: Pair | Examples | None, split: str) -> Examples:
        if isinstance(given, Examples):
            return given
        if given is None and split != "train":
            return Examples(self.train_examples.x[:0], self.train_examples.y[:0])
        what = f"device {self.id}, {split}"
        return Examples.checked(self.model, *checked_pair(given, what), what)

    def _initial_slots(self) -> Sequence[Array]:
        """Return the optimizer's initial slots; the seeds of random layers depend on the device and the round."""
        slots = list(self._pool.first.initial_slots)
        for i in self.model.random_states:
            seed = self.random("masks", i).integers(2**31 - 1)  # the range that Keras draws from
            slots[i] = np.array([seed, 0], slots[i].dtype)
        return slots

    def _new_state(self, slots: Sequence[Array]) -> ModelState:
        """Return a state with the initial weights, where the device's model runs."""
        return ModelState(self._pool, self.initial, slots)

    def random(self, *purpose: str | int) -> np.random.Generator:
        """Return a random generator that depends only on the seed, the id, the round and the purpose."""
        return generator_for(self.seed, self.id, self.round, *purpose)

    def train(
        self,
        epochs: int | None = None,
        learning_rate: float | None = None,
        group: str | None = None,
        inputs: Mapping[str, Any] | None = None,
    ) -> NDArray[np.float32]:
        """Train on the device's examples, in an order determined by the seed, id, round and epoch.

        If only the head is trained and the model has embeddings, each example is embedded once instead of in every
        epoch.

        Args:
            epochs: Passes over the examples; the plan's epochs or steps by default.
            learning_rate: The step size; by default the plan's, else the model's own.
            group: The group of parameters to train: `head`, `body`, `norm`, or several joined by `_`; all by default.
            inputs: Values of the model's further training inputs by name. Inputs that `model.train_inputs` declares per
                example have a row for each training example, in their order; inputs that are not given have their
                defaults. `sample_weight`, a number for each example, is the factor of its loss before the mean over a
                batch.

        Returns:
            `[steps]` float32: the loss of each step, before its update.

        Raises:
            ConfigurationError: The epochs or the learning rate is out of range.
            ModelError: The model accepts no learning rate, needs one, cannot train the group alone, or has no such
                input.
            DataError: An input has another shape or dtype.
        """
        step, further = step_for(self.model, group), self._further(inputs)
        plan = self.plan if epochs is None else TrainingPlan(epochs)
        losses = self._train(step, plan, further, self._constant_rate(learning_rate))
        self.finish()
        return np.asarray(losses, np.float32)

    def finish(self) -> None:
        """End training as Keras' `fit` does: set weights with moving averages (`use_ema`) to these averages.

        `train` does this itself; call `finish` after the last `train_step`.
        """
        if self.model.finalizes and self._steps_done:
            self._model_state.runtime(changes=STATE).finalize()
            self._inference.body_changed()

    def _further(self, inputs: Mapping[str, Any] | None) -> FurtherInputs:
        if not inputs:
            return NONE
        if not isinstance(inputs, Mapping):
            raise ConfigurationError(
                f"device {self.id}: inputs: expected a mapping of names and values, found {shown(inputs)}; pass such as "
                "{'sample_weight': weights}"
            )
        return FurtherInputs.checked(self.model, inputs, len(self.train_examples), f"device {self.id}")

    def _train(self, step: Step, plan: TrainingPlan, further: FurtherInputs, rate: float | None) -> list[float]:
        """Run the steps of a plan and return their losses; small models run several steps per call.

        `rate` is from `_constant_rate`.
        """
        sizes = steps_at_once(self._model_state.runtime(head=step.on_embeddings), step, self._offset)
        if not sizes:
            return self._steps(step, self._next_batches(step, plan, further), rate)
        losses: list[float] = []
        for stack in self._next_stacks(step, plan, further, sizes):
            runtime, rates = self._training_runtime(step), self._next_rates(rate, len(stack.positions))
            if len(rates) > 1:
                losses += run_stack(runtime, step, stack, rates, self._offset)
            else:
                losses += run_steps(runtime, step, [stack.first()], rates, self._offset)
        return losses

    def _next_batches(self, step: Step, plan: TrainingPlan, further: FurtherInputs) -> Iterator[Batch]:
        rows = self._rows_of(step)
        for examples in plan.passes(len(rows), self.model.batch_size):
            yield from self._shuffled(rows, "batches", self._epochs, examples, further)
            self._epochs += 1

    def _next_stacks(
        self, step: Step, plan: TrainingPlan, further: FurtherInputs, sizes: tuple[int, ...]
    ) -> Iterator[StackedBatches]:
        """Yield the batches of `_next_batches`, stacked for calls of several steps, and count the steps."""
        rows, weights = self._rows_of(step), further.of_rows.get(SAMPLE_WEIGHT)
        passes = plan.passes(len(rows), self.model.batch_size)
        while some := list(islice(passes, sizes[0])):  # whose steps are a multiple of the largest size
            orders = [self._order("batches", self._epochs + i, own) for i, own in enumerate(some)]
            self._epochs += len(orders)
            steps = sum(-(-len(order) // self.model.batch_size) for order in orders)
            self.calls.add_steps(step.signature, steps, sum(map(len, orders)))
            yield from stacked_batches(self.model, rows, orders, weights, (*sizes, 1))

    def _rows_of(self, step: Step) -> Examples:
        return self.embedded("train") if step.on_embeddings else self.train_examples

    def batches(
        self,
        plan: TrainingPlan | None = None,
        purpose: str = "batches",
        inputs: Mapping[str, Any] | None = None,
    ) -> Iterator[Batch]:
        """Yield the batches of a round's steps, for `train_step`.

        Args:
            plan: The epochs or steps; the device's plan by default.
            purpose: Selects the random order; `batches` is the order of `train` in a round's first epochs.
            inputs: Values of the model's further training inputs, as in `train`; batches carry them to `train_step`.

        Raises:
            DataError, ModelError: An input does not fit, see `train`.
        """
        plan = self.plan if plan is None else plan
        check_plan(plan, self.id)
        rows, further = self.train_examples, self._further(inputs)
        for epoch, examples in enumerate(plan.passes(len(rows), self.model.batch_size)):
            yield from self._shuffled(rows, purpose, epoch, examples, further)

    def _shuffled(
        self, rows: Examples, purpose: str, epoch: int, examples: int, further: FurtherInputs = NONE
    ) -> Iterator[Batch]:
        order, x, y = self._passes.take(rows, purpose, self.round, epoch, examples)
        return further.added(batches(self.model, x, y, further.rows(order)))

    def _order(self, purpose: str, epoch: int, examples: int) -> NDArray[np.int64]:
        """Return the positions of the first examples in a random order of all of them."""
        return self._passes.order(purpose, self.round, epoch, len(self.train_examples))[:examples]

    def prepare(self) -> None:
        """Draw the orders of the plan's first passes, or gather the rows of the first pass, before training needs them.

        A step evicts Python's code and data from the processor's caches, so preparing several devices before the first
        one trains is faster than preparing each after the steps of another.
        """
        step, examples = step_for(self.model), self.train_examples
        passes = self.plan.passes(len(examples), self.model.batch_size)
        pool = self._pool.head if step.on_embeddings else self._pool
        if sizes := pool.first.steps_at_once(step.signature):
            self._passes.draw_ahead(self.round, len(examples), len(list(islice(passes, sizes[0]))))
        elif not step.on_embeddings and (count := next(passes, 0)):
            self._passes.gather_ahead(examples, self.round, count)

    def train_step(self, batch: Batch, learning_rate: float | None = None, group: str | None = None) -> float:
        """Run one step on a batch of `batches` and return its loss.

        Raises:
            ConfigurationError, ModelError: See `train`.
        """
        step = step_for(self.model, group)
        if step.on_embeddings:
            batch = batch._replace(x=self._inference.outputs("embed", batch.x))
        [loss] = self._steps(step, [batch], self._constant_rate(learning_rate))
        return loss

    def infer_batch(self, batch: Batch) -> Rows:
        """Return the model's outputs for a batch of `batches`, `[batch, ...]` float32, including its padding."""
        return self._inference.outputs("infer", batch.x)

    def train_batch(self, x: Any, y: Any, learning_rate: float | None = None, group: str | None = None) -> float:
        """Run one step on the given rows, at most one batch, and return its loss.

        Raises:
            DataError: The rows do not fit the model, or there are none or more than a batch.
            ConfigurationError, ModelError: See `train`.
        """
        rows = Examples.checked(self.model, x, y, f"device {self.id}, batch")
        if not 0 < len(rows) <= self.model.batch_size:
            raise DataError(
                f"device {self.id}: expected a batch of 1 to {self.model.batch_size} rows, found {len(rows)}"
            )
        return self.train_step(next(batches(self.model, rows.x, rows.y)), learning_rate, group)

    def _steps(self, step: Step, batches: Iterable[Batch], rate: float | None) -> list[float]:
        """Run a step on each batch and return the losses; `rate` is from `_constant_rate`."""
        losses: list[float] = []
        for some in prepared(batches):
            runtime, rates = self._training_runtime(step), self._next_rates(rate, len(some))
            self.calls.add_steps(step.signature, len(some), sum(batch.examples for batch in some))
            losses += run_steps(runtime, step, some, rates, self._offset)
        return losses

    def _training_runtime(self, step: Step) -> Runtime:
        if not step.only_head:
            self._inference.body_changed()
        return self._model_state.runtime(changes=STATE, head=step.on_embeddings)

    def _constant_rate(self, given: float | None) -> float | None:
        """Return the learning rate of all next steps; None if the model's schedule may change it from step to step."""
        rate = self.learning_rate(given)
        return None if self.model.scheduled and given is None else rate

    def _next_rates(self, rate: float | None, steps: int) -> list[float]:
        """Count steps, and return their learning rates, given that of `_constant_rate`."""
        first = self._first_step + self._steps_done
        self._steps_done += steps
        return [self._rate(first + i) for i in range(steps)] if rate is None else [rate] * steps

    def call(self, signature: str, **inputs: Any) -> dict[str, Array]:
        """Run any signature of the file with the device's weights and slots, which it may change; return its outputs.

        Args:
            signature: The signature's name.
            inputs: An array for each of its inputs, by name; batches have the model's batch size.

        Raises:
            ModelError: The file has no such signature, or an input is missing, unknown or of another shape or dtype.
        """
        arrays = checked_call(self.model, signature, inputs, f"device {self.id}")
        outputs = self._model_state.runtime(changes=STATE).run(signature, **arrays)
        self._inference.body_changed()
        self.calls.add_inference(signature, 1, 0)
        return outputs

    def begin_again(self) -> None:
        """Reset everything except the weights to the beginning of the round, to train a second model on this device.

        Batch orders, masks and optimizer slots start over, and no gradient offset is set.
        """
        self._epochs, self._steps_done, self._offset = 0, 0, None
        self._replace(self.weights, self._initial_slots(), same_body=True)

    def set_gradient_offset(self, offset: Weights | None, mu: float = 0.0) -> None:
        """Make later steps use `g + mu w + offset` instead of the gradient `g`, until another call replaces the offset.

        Checkpoints do not contain the offset.

        Args:
            offset: Values for all parameters of `model.trainable_layout`; None for zero.
            mu: The factor of the proximal term.

        Raises:
            ConfigurationError: `mu` is not finite.
            ModelError: The offset has other parameters, or the model lacks the capability `gradient_offset`.
        """
        self._offset = GradientOffset.checked(self.model, offset, mu)

    def learning_rate(self, given: float | None = None) -> float:
        """Return the step size of the next step: the given one, else the plan's, else the model's own.

        The model's own may be a schedule. Its steps are counted over the rounds of a simulation as if the device had
        trained in each of them, so that the rate depends on the round, not on how often the device was drawn. The
        plan's `learning_rate_decay` multiplies the rate, unless it is given, once for each earlier round.
        """
        return self._rate(self._first_step + self._steps_done, given)

    def _rate(self, step: int, given: float | None = None) -> float:
        what = f"device {self.id}"
        return learning_rate_of(self.model, self.plan, given, what, lambda: self._pool.scheduled_rate(step), self.round)

    def sum_of_rates(self, steps: int) -> float:
        """Return the sum of the default step sizes of the last `steps` steps."""
        if not self.model.scheduled or self.plan.learning_rate is not None:
            return steps * self.learning_rate()
        last = self._first_step + self._steps_done
        return sum(map(self._rate, range(last - steps, last)))

    def infer(self, x: Any) -> Rows:
        """Return the model's outputs, `[rows, ...]` float32, for any number of rows `[rows, ...]`.

        Pass several inputs as a mapping or a tuple of arrays; several outputs are returned as columns.

        Raises:
            DataError: The rows do not fit the model.
        """
        rows = checked_inputs(x, self.model.infer_inputs, f"device {self.id}, x")
        check_ids(self.model, rows, f"device {self.id}, x")
        outputs = self._inference.outputs("infer", rows)
        if self.correction is None:
            return outputs
        return corrected(self.model, self.correction, self._inference.outputs("embed", rows), outputs, self.id)

    def outputs(self, split: str) -> Rows:
        """Return the model's outputs for a split, `[examples, ...]` float32, in the order of its examples.

        Raises:
            DataError: The device has no such examples.
        """
        return rows_of(self._answers(split)["answers"])

    def embedded(self, split: str) -> Examples:
        """Return a split with embeddings as `x`; the model needs the signature `embed`."""
        return self._inference.embedded(split, self._split(split))

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """Return the metrics of `test`, `validation` or `train`: `examples`, `loss`, the task's and the user's metrics.

        Raises:
            DataError: The device has no such examples.
            SimulationError: A user's metric failed.
        """
        found = self._answers(split)
        own = own_figures(
            self._own_metrics, found["answers"], found["y"], found["masks"], device=self.id, train=self._train_answers
        )
        return {**model_figures(self.model, **found), **own}

    def loss(self, split: str) -> float:
        """Return the mean loss of a split, without the other metrics of `evaluate`.

        Raises:
            DataError: The device has no such examples.
        """
        return model_loss(self.model, **self._answers(split))

    def example_losses(self, split: str) -> Array:
        """Return the loss of each example of a split, `[examples]`, in the order of its examples.

        Raises:
            DataError: The device has no such examples.
        """
        return model_example_losses(self.model, **self._answers(split))

    def _answers(self, split: str) -> dict[str, Any]:
        examples = self._split(split)
        if not len(examples):
            raise DataError(f"device {self.id}: has no {split} examples; provide some")
        return answers_of(self, self._inference, split, examples)

    def _train_answers(self) -> dict[str, Any] | None:
        return self._answers("train") if len(self.train_examples) else None

    def _split(self, split: str) -> Examples:
        splits = {"test": self.test_examples, "validation": self.validation_examples, "train": self.train_examples}
        check_split(split, splits, self.id)
        return splits[split]

    @property
    def initial(self) -> Weights:
        """The model's initial weights, read-only."""
        return self._pool.first.initial

    @property
    def weights(self) -> Weights:
        """The current weights, read-only; `parameters` returns a copy."""
        return self._model_state.weights

    def parameters(self, layout: Layout | None = None) -> Weights:
        """Return a copy of all weights, or the values of a layout's parameters, which may be read-only.

        Raises:
            ModelError: A parameter of the layout is missing, or has another shape.
        """
        if layout is not None:
            return self._model_state.select(layout)
        return Weights(self.model.layout, self.weights.vector.copy())

    def change_since(self, before: Weights) -> Weights:
        """Return the change of some weights: `parameters(before.layout) - before`, in fewer passes over the numbers.

        Args:
            before: All or some of the model's weights, such as those that the device received.

        Raises:
            ModelError: A parameter of `before` is missing, or has another shape.
        """
        return self._model_state.change_since(before)

    def restore(self, weights: "Weights | str | os.PathLike[str]") -> None:
        """Set weights, or load a checkpoint.

        Args:
            weights: All or some of the model's weights, or the path of a `.safetensors` file: weights saved by the page
                of `odt-sim phone`, or a checkpoint of `save`, which also restores the optimizer's slots and the counts
                of epochs and steps. Values that are not given stay unchanged.

        Raises:
            ModelError: The weights do not belong to this model.
            ConfigurationError: They are neither `Weights` nor a path.
            CheckpointError: The checkpoint is missing, damaged or belongs to another model.
        """
        if not isinstance(weights, Weights | str | os.PathLike):
            raise ConfigurationError(
                f"device {self.id}: expected Weights or the path of a checkpoint, found {type(weights).__name__}; "
                "create them with Weights.from_tensors(model.layout, arrays)"
            )
        if not isinstance(weights, Weights):
            saved = read_saved(Path(weights), self.model)
            if saved.slots is not None:
                self._epochs, self._steps_done = saved.epochs, saved.steps
                self._replace(saved.weights, saved.slots)
                return
            weights = saved.weights
        shapes = self.model.layout.shapes
        if weights.layout == self.model.layout:
            self._replace(weights.select(weights.layout), self._model_state.slots)
        elif all(p.group == "head" and shapes.get(p.name) == p.shape for p in weights.layout.parameters):
            self._model_state.replace_head(weights)
        else:
            self._replace(self.weights.replace(weights), self._model_state.slots)

    @names_arguments
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write weights, optimizer slots and the counts of epochs and steps to a checkpoint.

        A device with the same data, seed, id and round that restores it trains exactly as this one would.

        Raises:
            FileError: The file cannot be written; an earlier file stays intact.
        """
        slots = self._model_state.slots
        write_checkpoint(Path(path), self.model, self.weights, slots, self._epochs, self._steps_done)

    def optimizer_state(self) -> list[Array]:
        """Return a copy of the optimizer's slots `s0..sM`; empty if it has none."""
        return [slot.copy() for slot in self._model_state.slots]

    def restore_optimizer_state(self, slots: Sequence[Array]) -> None:
        """Set the optimizer's slots.

        Raises:
            ModelError: Their number, a shape or a dtype does not fit.
        """
        copies = [np.array(slot) for slot in slots]
        found = [(slot.shape, str(slot.dtype)) for slot in copies]
        expected = [(slot.shape, slot.dtype) for slot in self.model.slots]
        if found != expected:
            raise ModelError(f"{self.model.where}: expected the optimizer's slots {expected}, found {found}")
        self._replace(self.weights, copies, same_body=True)

    def _replace(self, weights: Weights, slots: Sequence[Array], *, same_body: bool = False) -> None:
        self._model_state.replace(weights, slots, same_body=same_body)
        if not same_body:
            self._inference.body_changed()

    def release(self) -> None:
        """Return the interpreter to the pool; training since the last read of the weights is lost."""
        self._model_state.release()
