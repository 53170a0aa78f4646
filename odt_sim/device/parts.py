"""The parts of a device: its state, its training and its scoring, in an engine of this process or elsewhere."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from odt_sim.data.store.columns import Array
from odt_sim.device.checkpoint import read_saved
from odt_sim.device.random import generator_for
from odt_sim.device.runtime_pool import ModelState, RuntimePool
from odt_sim.device.scoring import Calls, EngineScoring, Scoring
from odt_sim.device.training import EngineSteps, Steps, Training
from odt_sim.errors import ConfigurationError, ModelError
from odt_sim.metrics.own import OwnMetric
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Layout, Weights


class State(Protocol):
    """A device's weights and optimizer slots, wherever they are: `ModelState` in this process, others on a phone."""

    @property
    def weights(self) -> Weights:
        """All weights, read-only."""

    @property
    def slots(self) -> Sequence[Array]:
        """The optimizer's slots; do not write to them."""

    def select(self, layout: Layout) -> Weights:
        """Return a copy of some weights."""

    def replace(self, weights: Weights, slots: Sequence[Array], *, same_body: bool = False) -> None:
        """Set weights and slots; `same_body` says that no weight outside the head differs from this state's."""

    def replace_head(self, weights: Weights) -> None:
        """Set some of the head's weights; everything else stays unchanged."""

    def release(self) -> None:
        """Give back what runs the model; training since the last read of the weights is lost."""


class Parts(NamedTuple):
    """The parts of a device, with the model's initial weights.

    Attributes:
        state: Weights and slots.
        steps: Runs training steps.
        scoring: Runs and scores the model.
        calls: Counts the model's calls.
        initial: The model's initial weights, read-only.
        initial_slots: The optimizer's initial slots.
    """

    state: State
    steps: Steps
    scoring: Scoring
    calls: Calls
    initial: Weights
    initial_slots: Sequence[Array]


def engine_parts(pool: RuntimePool, id: int, metrics: Sequence[OwnMetric] = ()) -> Parts:
    """Return the parts of a device that runs in an engine of this process.

    Args:
        pool: The engines, which devices share.
        id: The device's id.
        metrics: The user's metrics.
    """
    initial, slots, calls = pool.first.initial, pool.first.initial_slots, Calls()
    state = ModelState(pool, initial, slots)
    scoring = EngineScoring(id, state, pool, calls, metrics)
    return Parts(state, EngineSteps(state, pool, scoring), scoring, calls, initial, slots)


class StateOwner:
    """The weights and slots of a device: they are read, set, saved and restored; `Device` adds training and scoring."""

    model: TrainableModel
    id: int
    seed: int
    round: int
    _state: State
    _training: Training
    _initial_slots: Sequence[Array]

    @property
    def weights(self) -> Weights:
        """The current weights, read-only; `parameters` returns a copy."""
        return self._state.weights

    def parameters(self, layout: Layout | None = None) -> Weights:
        """Return a copy of all weights, or the values of a layout's parameters, which may be read-only.

        Raises:
            ModelError: A parameter of the layout is missing, or has another shape.
        """
        if layout is not None:
            return self._state.select(layout)
        return Weights(self.model.layout, self.weights.vector.copy())

    def change_since(self, before: Weights) -> Weights:
        """Return the change of some weights: `parameters(before.layout) - before`.

        Args:
            before: All or some of the model's weights, such as those that the device received.

        Raises:
            ModelError: A parameter of `before` is missing, or has another shape.
        """
        return self._state.select(before.layout) - before

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
        model, state = self.model, self._state
        if not isinstance(weights, Weights | str | os.PathLike):
            raise ConfigurationError(
                f"device {self.id}: expected Weights or the path of a checkpoint, found {type(weights).__name__}; "
                "create them with Weights.from_tensors(model.layout, arrays)"
            )
        if not isinstance(weights, Weights):
            saved = read_saved(Path(weights), model)
            if saved.slots is not None:
                state.replace(saved.weights, saved.slots)
                self._training.epochs, self._training.steps = saved.epochs, saved.steps
                return
            weights = saved.weights
        shapes = model.layout.shapes
        if weights.layout == model.layout:
            state.replace(weights.select(weights.layout), state.slots)
        elif all(p.group == "head" and shapes.get(p.name) == p.shape for p in weights.layout.parameters):
            state.replace_head(weights)
        else:
            state.replace(state.weights.replace(weights), state.slots)

    def optimizer_state(self) -> list[Array]:
        """Return a copy of the optimizer's slots `s0..sM`; empty if it has none."""
        return [slot.copy() for slot in self._state.slots]

    def restore_optimizer_state(self, slots: Sequence[Array]) -> None:
        """Set the optimizer's slots.

        Raises:
            ModelError: Their number, a shape or a dtype does not fit.
        """
        copies = [np.array(slot) for slot in slots]
        passed = [(slot.shape, str(slot.dtype)) for slot in copies]
        expected = [(slot.shape, slot.dtype) for slot in self.model.slots]
        if passed != expected:
            raise ModelError(f"{self.model.where}: expected the optimizer's slots {expected}, found {passed}")
        self._state.replace(self.weights, copies, same_body=True)

    def release(self) -> None:
        """Return the interpreter to the pool; training since the last read of the weights is lost."""
        self._state.release()

    def finish(self) -> None:
        """End training as Keras' `fit` does: set weights with moving averages (`use_ema`) to these averages.

        `train` does this itself; call `finish` after the last `train_step`.
        """
        self._training.finish()

    def begin_again(self) -> None:
        """Reset everything except the weights to the beginning of the round, to train a second model on this device.

        Batch orders, masks and optimizer slots start over, and no gradient offset is set.
        """
        self._training.begin_again()
        self._state.replace(self.weights, self._seeded_slots(), same_body=True)

    def _seeded_slots(self) -> Sequence[Array]:
        """Return initial slots with the seeds of random layers, which depend on the run's seed, the device and the round."""
        seeded = list(self._initial_slots)
        for i in self.model.random_states:
            generator = generator_for(self.seed, self.id, self.round, "masks", i)
            seeded[i] = np.array([generator.integers(2**31 - 1), 0], seeded[i].dtype)  # the range that Keras draws from
        return seeded
