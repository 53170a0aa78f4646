"""One simulated user: a model in an interpreter, a checkpoint, and data of its own."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.batches import Batch, batches
from odt_sim.device.checkpoint import read_checkpoint, write_checkpoint
from odt_sim.device.examples import Examples, checked_rows
from odt_sim.device.features import digest_of_body
from odt_sim.device.inference import Calls, answers, call_count
from odt_sim.device.offset import GradientOffset, run_step
from odt_sim.device.plan import TrainingPlan, learning_rate_of
from odt_sim.device.random import generator_for
from odt_sim.device.runtime import Runtime, RuntimePool
from odt_sim.device.step import Step, step_of
from odt_sim.errors import ConfigurationError, DataError, ModelError
from odt_sim.metrics.device import figures, mean_loss
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights

Array = NDArray[Any]
Pair = tuple[Any, Any]


class Device:
    """Trains, evaluates, saves and restores a trainable model on its own data.

    A device is what it would be on a phone. Its interpreter may be lent to other devices between two calls; this is
    never seen from outside.

    Attributes:
        model: The model it trains.
        id: Its number in the fleet.
        seed: The seed of the run. A batch order depends on the seed, the id, the round and the epoch within the round.
        round: The round that the device is in; 0 outside a simulation.
        plan: The epochs or steps, and the learning rate, of `train` where a call names none.
        train_examples: The examples to train on.
        validation_examples: The examples to choose by; empty where there are none.
        test_examples: The examples to report on; empty where there are none.
        state: What a strategy keeps on this device from round to round.
        records: Figures of its own that a strategy wants in the device's line of `devices.jsonl`.
        calls: How often it has had its model run.
        correction: What a strategy makes of the model's answers: a function of embeddings and outputs, `[rows, ...]` each,
            that returns outputs; None leaves them as they are.
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
    ) -> None:
        """Sets a device up with the weights that the model was exported with.

        Args:
            model: The model to train.
            train: `(x, y)`, or `Examples` that were checked before.
            validation: The same to choose hyper-parameters by.
            test: The same to report on.
            seed: The seed of its batch orders.
            id: Its number in the fleet.
            round: The round it is in.
            plan: Epochs or steps, and learning rate, where a call of `train` names none.
            pool: The interpreters to run in; one of its own by default.

        Raises:
            ConfigurationError: The seed, the id or the round is below 0.
            DataError: The examples do not fit the model.
            ModelError: LiteRT cannot load the model.
        """
        if min(seed, id, round) < 0:
            raise ConfigurationError(f"device {id}: seed {seed}, id {id} and round {round} should be at least 0")
        self.model, self.id, self.seed, self.round = model, id, seed, round
        self.plan = plan or TrainingPlan()
        self.train_examples = self._examples(train, "train")
        self.validation_examples = self._examples(validation, "validation")
        self.test_examples = self._examples(test, "test")
        if not len(self.train_examples):
            raise DataError(f"device {id}: has no training example; give it some or leave it out")
        self.state: dict[str, Weights | Array] = {}
        self.records: dict[str, float] = {}
        self.calls = Calls()
        self.correction: Callable[[Array, Array], Array] | None = None
        self._pool = pool or RuntimePool(model)
        self._weights = self.initial
        self._slots: Sequence[Array] = self._fresh_slots(self._pool.first.initial_slots)
        self._weights_here = self._slots_here = True  # whether the host's copy is that of the interpreter
        self._epochs = 0
        self._offset: GradientOffset | None = None
        self._body: str | None = None  # the digest of the parameters outside the head, where it is known
        self._embedded: dict[str, str] = {}  # by split, the body that this device has embedded it with

    def _fresh_slots(self, initial: Sequence[Array]) -> Sequence[Array]:
        """Returns the optimizer's initial slots, and for random layers a seed that only this device has in this round."""
        slots = list(initial)
        for i in self.model.random_states:
            seed = self.random("masks", i).integers(2**31 - 1)  # 0 to 2^31 - 2, as Keras draws its own
            slots[i] = np.array([seed, 0], slots[i].dtype)
        return slots

    def _examples(self, given: Pair | Examples | None, split: str) -> Examples:
        if isinstance(given, Examples):
            return given
        if given is None:
            return Examples(self.train_examples.x[:0], self.train_examples.y[:0])
        return Examples.checked(self.model, *given, f"device {self.id}, {split}")

    # --- the interpreter -------------------------------------------------------------------------------------------

    def move_in(self, runtime: Runtime) -> None:
        """Writes this device's weights and slots into an interpreter."""
        runtime.write(self._weights)
        runtime.write_slots(self._slots)

    def move_out(self, runtime: Runtime) -> None:
        """Reads this device's weights and slots out of its interpreter, which another device gets."""
        if not self._weights_here:
            self._weights, self._weights_here = runtime.read(), True
        if not self._slots_here:
            self._slots, self._slots_here = runtime.read_slots(), True

    def release(self) -> None:
        """Gives the interpreter back and forgets the weights in it: for a device whose work is done."""
        self._pool.release(self)

    @property
    def weights(self) -> Weights:
        """All the weights that the device has now; read-only, where `parameters` returns a copy."""
        if not self._weights_here:
            self._weights, self._weights_here = self._pool.acquire(self).read(), True
        return self._weights

    def _host_slots(self) -> Sequence[Array]:
        """Returns the optimizer's slots that the device has now; they are not to be changed."""
        if not self._slots_here:
            self._slots, self._slots_here = self._pool.acquire(self).read_slots(), True
        return self._slots

    # --- training --------------------------------------------------------------------------------------------------

    def train(
        self, epochs: int | None = None, learning_rate: float | None = None, group: str | None = None
    ) -> NDArray[np.float32]:
        """Trains on the device's own examples, in an order that its seed, id, round and epoch decide.

        An epoch's last batch may be smaller: see `odt_sim.device.batches.batches`. Where only the head is trained and the
        model can embed, each example is embedded once and not in every epoch.

        Args:
            epochs: Passes over the examples; the plan's epochs or steps by default.
            learning_rate: The step size; the plan's by default, and else the one the model was exported with.
            group: The group of parameters to train alone: `head`, `body`, `norm`, or several joined by `_`.

        Returns:
            `[steps]` float32: the loss of each step, before its update.

        Raises:
            ConfigurationError: The epochs or the learning rate are out of range.
            ModelError: The model takes no learning rate, or has none of its own and none is given, or cannot train the group
                alone.
        """
        step = step_of(self.model, group)
        plan = self.plan if epochs is None else TrainingPlan(epochs)
        rate = self.learning_rate(learning_rate)
        losses = []
        rows = self.embedded("train") if step.on_embeddings else self.train_examples
        for examples in plan.passes(len(rows), self.model.batch_size):
            shuffled = self._shuffled(rows, "batches", self._epochs, examples)
            losses += [self._step(step, batch, rate) for batch in shuffled]
            self._epochs += 1
        return np.asarray(losses, np.float32)

    def batches(self, plan: TrainingPlan | None = None, purpose: str = "batches") -> Iterator[Batch]:
        """Yields the device's own examples in the batches of a round's steps, for `train_step`.

        Args:
            plan: How many; the device's own by default.
            purpose: What their order is drawn for; `batches` has the order of `train` in a round's first epochs.
        """
        rows = self.train_examples
        for epoch, examples in enumerate((plan or self.plan).passes(len(rows), self.model.batch_size)):
            yield from self._shuffled(rows, purpose, epoch, examples)

    def _shuffled(self, rows: Examples, purpose: str, epoch: int, examples: int) -> Iterator[Batch]:
        return batches(self.model, *rows.take(self.random(purpose, epoch).permutation(len(rows))[:examples]))

    def train_step(self, batch: Batch, learning_rate: float | None = None, group: str | None = None) -> float:
        """Runs one step on a batch that `batches` yielded and returns its loss: a `train_batch` without checks of its rows.

        Raises:
            ConfigurationError, ModelError: As `train`.
        """
        step = step_of(self.model, group)
        if step.on_embeddings:
            batch = batch._replace(x=self._answers("embed", batch.x))
        return self._step(step, batch, self.learning_rate(learning_rate))

    def train_batch(self, x: Any, y: Any, learning_rate: float | None = None, group: str | None = None) -> float:
        """Runs one step on up to one batch of rows of the caller's choice and returns its loss.

        Raises:
            DataError: The rows do not fit the model, or are none or more than a batch.
            ConfigurationError, ModelError: As `train`.
        """
        rows = Examples.checked(self.model, x, y, f"device {self.id}, batch")
        if not 0 < len(rows) <= self.model.batch_size:
            raise DataError(f"device {self.id}: a batch has 1 to {self.model.batch_size} rows, found {len(rows)}")
        return self.train_step(next(batches(self.model, rows.x, rows.y)), learning_rate, group)

    def _step(self, step: Step, batch: Batch, learning_rate: float) -> float:
        runtime = self._pool.acquire(self)
        self._weights_here = self._slots_here = False
        if not step.only_head:
            self._body = None
        self.calls.train += 1
        return run_step(runtime, step, batch, learning_rate, self._offset)

    def begin_again(self) -> None:
        """Has the device train from here as at the beginning of its round, for a strategy that trains a second model on it.

        Batch orders, masks and the optimizer's slots are again those of the round's first step, and no gradient offset is
        set. The weights stay as they are.
        """
        self._epochs, self._offset = 0, None
        self._place(self.weights, self._fresh_slots(self._pool.first.initial_slots))

    def set_gradient_offset(self, offset: Weights | None, mu: float = 0.0) -> None:
        """Has every later step use `g + mu w + offset` in place of the gradient `g`, on the parameters that it trains.

        It stays until another one is set; None and 0 end it. A checkpoint does not hold it.

        Args:
            offset: The trainable parameters, of the layout `model.trainable_layout`; None for zero.
            mu: The factor of the proximal term.

        Raises:
            ConfigurationError: `mu` is not finite.
            ModelError: The offset holds other parameters, or the model's steps take none; see `capabilities`.
        """
        self._offset = GradientOffset.checked(self.model, offset, mu)

    def learning_rate(self, given: float | None = None) -> float:
        """Returns the step size of a step: see `odt_sim.device.plan.learning_rate_of`."""
        return learning_rate_of(self.model, self.plan, given, f"device {self.id}")

    # --- inference -------------------------------------------------------------------------------------------------

    def infer(self, x: Any) -> Array:
        """Returns the model's outputs for any number of rows.

        Args:
            x: `[rows, ...]`.

        Returns:
            `[rows, ...]` float32: logits, or whatever the model ends in.

        Raises:
            DataError: The rows do not fit the model.
        """
        x = checked_rows(x, self.model.signatures["infer"].inputs["x"], f"device {self.id}, x")
        outputs = self._answers("infer", x)
        return outputs if self.correction is None else self.correction(self._answers("embed", x), outputs)

    def _answers(self, signature: str, x: Array) -> Array:
        self.calls.infer += call_count(self.model, signature, len(x))
        return answers(self._pool.acquire(self), signature, x)

    def embedded(self, split: str) -> Examples:
        """Returns a split whose `x` are embeddings, computed only where the same body has not embedded it before.

        The model must have the signature `embed`.
        """
        if self._body is None:
            self._body = digest_of_body(self.weights)
        examples = self._splits[split]
        if self._embedded.get(split) != self._body:
            self.calls.infer += call_count(self.model, "embed", len(examples))
            self._embedded[split] = self._body
        features = self._pool.features.features(
            self.id, split, examples, self._body, lambda: answers(self._pool.acquire(self), "embed", examples.take()[0])
        )
        return examples.with_features(features)

    @property
    def _splits(self) -> dict[str, Examples]:
        return {"test": self.test_examples, "validation": self.validation_examples, "train": self.train_examples}

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """Returns `accuracy`, `loss` and `examples` of a classifier, or `mse`, `mae`, `loss`, `examples`, and some more.

        `odt_sim.metrics.device.figures` says which.

        Args:
            split: `test`, `validation` or `train`.

        Raises:
            DataError: The device has no such examples.
        """
        outputs, y = self._answered(split)
        return figures(outputs, y, self.model.loss, self.model.from_logits, self.model.delta)

    def loss(self, split: str) -> float:
        """Returns the mean loss of a split: `evaluate` without its other figures, for strategies that choose by it.

        Raises:
            DataError: The device has no such examples.
        """
        outputs, y = self._answered(split)
        return mean_loss(outputs, y, self.model.loss, self.model.from_logits, self.model.delta)

    def _answered(self, split: str) -> Pair:
        """Returns the outputs for a split, corrected where a strategy says so, and its targets."""
        if split not in self._splits:
            raise DataError(f"device {self.id}: no split {split!r}; there are {', '.join(self._splits)}")
        if not len(self._splits[split]):
            raise DataError(f"device {self.id}: has no {split} examples; give it some")
        x, y = (self.embedded(split) if self.model.embeds else self._splits[split]).take()
        outputs = self._answers("head_infer" if self.model.embeds else "infer", x)
        return outputs if self.correction is None else self.correction(self.embedded(split).x, outputs), y

    # --- weights ---------------------------------------------------------------------------------------------------

    @property
    def initial(self) -> Weights:
        """All the weights that the model was exported with; read-only."""
        return self._pool.first.initial

    def parameters(self) -> Weights:
        """Returns a copy of the weights."""
        return Weights(self.model.layout, self.weights.vector.copy())

    def restore(self, weights: "Weights | str | os.PathLike[str]") -> None:
        """Sets weights; those that are not given stay as they are, and so do the optimizer's slots.

        Args:
            weights: All the model's weights, some of them, or the path of a checkpoint that `save` wrote, which
                brings the optimizer's slots and the count of epochs back, too.

        Raises:
            ModelError: The weights are not of this model.
            CheckpointError: The checkpoint is missing, damaged or of another model.
        """
        if not isinstance(weights, Weights):
            saved, slots, self._epochs = read_checkpoint(Path(weights), self.model)
            return self._place(saved, slots)
        whole = weights.layout == self.model.layout
        after = weights.select(weights.layout) if whole else self.weights.replace(weights)
        self._place(after, self._host_slots())

    def optimizer_state(self) -> list[Array]:
        """Returns a copy of the optimizer's slots `s0..sM`; empty where it has none."""
        return [slot.copy() for slot in self._host_slots()]

    def restore_optimizer_state(self, slots: Sequence[Array]) -> None:
        """Sets the optimizer's slots.

        Raises:
            ModelError: Their number or a shape does not fit.
        """
        copies = [np.array(slot) for slot in slots]
        found = [(slot.shape, str(slot.dtype)) for slot in copies]
        expected = [(slot.shape, slot.dtype) for slot in self.model.slots]
        if found != expected:
            raise ModelError(f"{self.model.where}: expected the optimizer's slots {expected}, found {found}")
        self._place(self.weights, copies)

    def _place(self, weights: Weights, slots: Sequence[Array]) -> None:
        weights.vector.flags.writeable = False
        self._weights, self._slots, self._body = weights, slots, None
        self._weights_here = self._slots_here = True
        self._pool.release(self)  # written into an interpreter when the device next runs

    # --- checkpoints -----------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the weights, the optimizer's slots and the count of epochs into a checkpoint.

        A device of the same data, seed, id and round that restores it goes on exactly as this one.

        Raises:
            FileError: The file cannot be written; what was there before is untouched.
        """
        write_checkpoint(Path(path), self.model, self.weights, self._host_slots(), self._epochs)

    def random(self, *purpose: str | int) -> np.random.Generator:
        """Returns a random generator that depends on the seed, the id, the round and the purpose only."""
        return generator_for(self.seed, self.id, self.round, *purpose)
