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
from odt_sim.device.training import EngineSteps, Steps
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


def seeded_slots(model: TrainableModel, slots: Sequence[Array], *device: int) -> Sequence[Array]:
    """Return initial slots with the seeds of random layers, which depend on the run's seed, the device and the round."""
    seeded = list(slots)
    for i in model.random_states:
        seed = generator_for(*device, "masks", i).integers(2**31 - 1)  # the range that Keras draws from
        seeded[i] = np.array([seed, 0], seeded[i].dtype)
    return seeded


def restore(
    state: State, model: TrainableModel, weights: "Weights | str | os.PathLike[str]", what: str
) -> tuple[int, int] | None:
    """Set the weights of a state, or load a checkpoint; see `Device.restore`.

    Args:
        state: The state to change.
        model: Its model.
        weights: All or some weights, or the path of a file.
        what: The name for errors, such as `device 3`.

    Returns:
        The epochs and steps that a checkpoint counts; None for weights.

    Raises:
        ModelError, ConfigurationError, CheckpointError: See `Device.restore`.
    """
    if not isinstance(weights, Weights | str | os.PathLike):
        raise ConfigurationError(
            f"{what}: expected Weights or the path of a checkpoint, found {type(weights).__name__}; "
            "create them with Weights.from_tensors(model.layout, arrays)"
        )
    if not isinstance(weights, Weights):
        saved = read_saved(Path(weights), model)
        if saved.slots is not None:
            state.replace(saved.weights, saved.slots)
            return saved.epochs, saved.steps
        weights = saved.weights
    shapes = model.layout.shapes
    if weights.layout == model.layout:
        state.replace(weights.select(weights.layout), state.slots)
    elif all(p.group == "head" and shapes.get(p.name) == p.shape for p in weights.layout.parameters):
        state.replace_head(weights)
    else:
        state.replace(state.weights.replace(weights), state.slots)
    return None


def checked_slots(model: TrainableModel, slots: Sequence[Array]) -> list[Array]:
    """Return copies of optimizer slots.

    Raises:
        ModelError: Their number, a shape or a dtype does not fit.
    """
    copies = [np.array(slot) for slot in slots]
    passed = [(slot.shape, str(slot.dtype)) for slot in copies]
    expected = [(slot.shape, slot.dtype) for slot in model.slots]
    if passed != expected:
        raise ModelError(f"{model.where}: expected the optimizer's slots {expected}, found {passed}")
    return copies
