"""One simulated device: a model, its state and its own data."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.store.columns import Array, Rows
from odt_sim.device.batches import Batch, given_batch
from odt_sim.device.checkpoint import write_checkpoint
from odt_sim.device.examples import Examples, check_ids, checked_inputs
from odt_sim.device.further_inputs import checked_call
from odt_sim.device.parts import Parts, StateOwner, engine_parts
from odt_sim.device.plan import TrainingPlan
from odt_sim.device.random import generator_for
from odt_sim.device.runtime_pool import RuntimePool
from odt_sim.device.scoring import Correction, Predictor, Scored, split_of
from odt_sim.device.training import GradientOffset, Local, Training
from odt_sim.errors import ConfigurationError, DataError
from odt_sim.metrics.own import OwnMetric
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights

Pair = tuple[Any, Any]
Inputs = Mapping[str, Any] | None


class Device(StateOwner):
    """Trains, evaluates, saves and restores a trainable model on its own data.

    Devices may share interpreters; sharing changes no result. `model`, `seed`, `id`, `round` and `plan` are attributes, too.
    Methods that take a split, `test`, `validation` or `train`, raise a `DataError` if the device has no such examples.

    Attributes:
        train_examples: The training examples, read-only.
        validation_examples: Examples for model selection; may be empty.
        test_examples: Examples for reported results; may be empty.
        state: What a strategy keeps on this device between rounds.
        records: Numbers of the strategy for the device's line in `devices.jsonl`, set by `deploy`.
        calls: The number of model calls.
        initial: The model's initial weights, read-only.
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
        parts: Parts | None = None,
    ) -> None:
        """Create a device with the model's initial weights.

        Args:
            model: The model.
            train: Training examples: `(x, y)`, or checked `Examples`.
            validation: Examples for model selection; none by default.
            test: Examples for reported results; none by default.
            seed: The run's seed. Batch orders depend on the seed, the id, the round and the epoch within the round.
            id: The device's number in the fleet.
            round: The current round; 0 outside a simulation.
            plan: The default epochs or steps, and the default learning rate, of `train`; one epoch by default.
            pool: The interpreters to share with other devices of the model, `RuntimePool(model)`; a new pool by default.
            metrics: The user's own metrics, which `evaluate` adds to those of the task.
            parts: What runs the model elsewhere, such as on a phone, instead of `pool` and `metrics`.

        Raises:
            ConfigurationError: An argument other than the examples has another type, or a number is below 0.
            DataError: The examples do not fit the model.
            ModelError: LiteRT cannot load the model.
        """
        if not isinstance(model, TrainableModel):
            raise ConfigurationError(
                f"device {id}: expected a TrainableModel, found {type(model).__name__}; load it with "
                "TrainableModel.load(path)"
            )
        self.model, self.id, self.seed, self.round = model, id, seed, round
        self.plan = TrainingPlan() if plan is None else plan
        what = f"device {id}"
        self.train_examples = Examples.of_pair(model, train, f"{what}, train")
        none = Examples(self.train_examples.x[:0], self.train_examples.y[:0])
        self.validation_examples = Examples.of_pair(
            model, none if validation is None else validation, f"{what}, validation"
        )
        self.test_examples = Examples.of_pair(model, none if test is None else test, f"{what}, test")
        if not len(self.train_examples):
            raise DataError(f"device {id}: expected at least 1 training example, found 0; leave the device out")
        self.state: dict[str, Weights | Array] = {}
        self.records: dict[str, float] = {}
        self.correction: Correction | None = None
        self.predictor: Predictor | None = None
        parts = parts or engine_parts(pool or RuntimePool(model), id, metrics)
        self._state, steps, self._scoring, self.calls, self.initial, self._initial_slots = parts
        self._training = Training(model, steps, self.calls, seed=seed, id=id, local=self._local)
        if model.random_states:
            self._state.replace(self.initial, self._seeded_slots())

    def __reduce__(self) -> str:
        """Raise a `TypeError`: an interpreter cannot be sent to another process."""
        raise TypeError(
            "a Device cannot be pickled, since it owns an interpreter; create it in the process that uses it"
        )

    def __repr__(self) -> str:
        """Return one line: the id, the model and the numbers of examples."""
        train, validation, test = map(len, (self.train_examples, self.validation_examples, self.test_examples))
        examples = f"{train} training, {validation} validation and {test} test examples"
        return f"{type(self).__name__}({self.id}: {self.model.name}, {examples})"

    def random(self, *purpose: str | int) -> np.random.Generator:
        """Return a random generator that depends only on the seed, the id, the round and the purpose."""
        return generator_for(self.seed, self.id, self.round, *purpose)

    def train(
        self,
        epochs: int | None = None,
        learning_rate: float | None = None,
        group: str | None = None,
        inputs: Inputs = None,
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
        plan = self.plan if epochs is None else replace(self.plan, epochs=epochs, steps=None)
        return self._training.train(self._local._replace(plan=plan), learning_rate, group, inputs)

    def batches(
        self, plan: TrainingPlan | None = None, purpose: str = "batches", inputs: Inputs = None
    ) -> Iterator[Batch]:
        """Yield the batches of a round's steps, for `train_step`.

        Args:
            plan: The epochs or steps; the device's plan by default.
            purpose: Selects the random order; `batches` is the order of `train` in a round's first epochs.
            inputs: Values of the model's further training inputs, as in `train`; batches carry them to `train_step`.

        Raises:
            ConfigurationError, DataError, ModelError: The plan is not a `TrainingPlan`, or an input does not fit.
        """
        local = self._local if plan is None else self._local._replace(plan=plan)
        return self._training.batches(local, purpose, inputs)

    def train_step(self, batch: Batch, learning_rate: float | None = None, group: str | None = None) -> float:
        """Run one step on a batch of `batches` and return its loss.

        Raises:
            ConfigurationError, ModelError: See `train`.
        """
        return self._training.train_step(self._local, batch, learning_rate, group)

    def train_batch(self, x: Any, y: Any, learning_rate: float | None = None, group: str | None = None) -> float:
        """Run one step on the given rows, at most one batch, and return its loss.

        Raises:
            DataError: The rows do not fit the model, or there are none or more than a batch.
            ConfigurationError, ModelError: See `train`.
        """
        return self.train_step(given_batch(self.model, x, y, f"device {self.id}"), learning_rate, group)

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
        self._training.offset = GradientOffset.checked(self.model, offset, mu)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write weights, optimizer slots and the counts of epochs and steps to a checkpoint.

        A device with the same data, seed, id and round that restores it trains exactly as this one would.

        Raises:
            FileError: The file cannot be written; an earlier file stays intact.
        """
        done = self._training.epochs, self._training.steps
        write_checkpoint(Path(path), self.model, self.weights, self._state.slots, *done)

    def learning_rate(self, given: float | None = None) -> float:
        """Return the step size of the next step: the given one, else the plan's, else the model's own.

        The model's own may be a schedule. Its steps are counted over the rounds of a simulation as if the device had
        trained in each of them, so that the rate depends on the round, not on how often the device was drawn. The
        plan's `learning_rate_decay` multiplies the rate, unless it is given, once for each earlier round.
        """
        return self._training.learning_rate(self._local, given)

    def sum_of_rates(self, steps: int) -> float:
        """Return the sum of the default step sizes of the last `steps` steps."""
        return self._training.sum_of_rates(self._local, steps)

    @property
    def _local(self) -> Local:
        return Local(self.round, self.plan, self.train_examples)

    def infer(self, x: Any) -> Rows:
        """Return the model's outputs, `[rows, ...]` float32, for any number of rows `[rows, ...]`.

        Pass several inputs as a mapping or a tuple of arrays; several outputs are returned as columns.

        Raises:
            DataError: The rows do not fit the model.
        """
        rows = checked_inputs(x, self.model.infer_inputs, f"device {self.id}, x")
        check_ids(self.model, rows, f"device {self.id}, x")
        return self._scoring.infer(rows, self.correction)

    def infer_batch(self, batch: Batch) -> Rows:
        """Return the model's outputs for a batch of `batches`, `[batch, ...]` float32, including its padding."""
        return self._scoring.infer(batch.x)

    def call(self, signature: str, **inputs: Any) -> dict[str, Array]:
        """Run any signature of the file with the device's weights and slots, which it may change; return its outputs.

        Args:
            signature: The signature's name.
            inputs: An array for each of its inputs, by name; batches have the model's batch size.

        Raises:
            ModelError: The file has no such signature, or an input is missing, unknown or of another shape or dtype.
        """
        return self._scoring.call(signature, checked_call(self.model, signature, inputs, f"device {self.id}"))

    def outputs(self, split: str) -> Rows:
        """Return the model's outputs for a split, `[examples, ...]` float32, in the order of its examples."""
        return self._scoring.outputs(self._scored(split))

    def embedded(self, split: str) -> Examples:
        """Return a split with embeddings as `x`; the model needs the signature `embed`."""
        return self._scoring.embedded(split, self._split(split))

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """Return the metrics of a split: `examples`, `loss`, those of the model's task, and the user's.

        Raises:
            SimulationError: A user's metric failed.
        """
        train = self._scored("train") if len(self.train_examples) else None
        return self._scoring.figures(self._scored(split), train)

    def loss(self, split: str) -> float:
        """Return the mean loss of a split, without the other metrics of `evaluate`."""
        return self._scoring.loss(self._scored(split))

    def example_losses(self, split: str) -> Array:
        """Return the loss of each example of a split, `[examples]`, in the order of its examples."""
        return self._scoring.example_losses(self._scored(split))

    def _scored(self, split: str) -> Scored:
        return Scored(split, self._split(split), self.correction, self.predictor).checked(self.id)

    def _split(self, split: str) -> Examples:
        splits = {"test": self.test_examples, "validation": self.validation_examples, "train": self.train_examples}
        return split_of(splits, split, self.id)
