"""The messages between the coordinator and its workers: a run's job, a block's task and its result."""

from collections.abc import Mapping, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal

from numpy.typing import NDArray

from odt_sim.aggregators.base import Aggregator
from odt_sim.aggregators.mean import Mean
from odt_sim.data.federated import FederatedData
from odt_sim.device.plan import TrainingPlan
from odt_sim.errors import InvocationError, OdtSimError, SimulationError
from odt_sim.model.manifest import REGRESSIONS
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Layout
from odt_sim.persistence.storage import Storage
from odt_sim.persistence.versions import Version
from odt_sim.settings import Fleet
from odt_sim.strategies.base import Strategy, Update
from odt_sim.user_code import user_code_errors

ADVICE = "correct it, with backend=serial to debug it"


@dataclass(frozen=True)
class Job:
    """What stays the same for a whole run, and every worker needs.

    Attributes:
        model: The model that all devices train.
        data: The devices' examples.
        strategy: What devices do.
        plan: How they train.
        seed: The run's seed, at least 0.
        storage: Where devices' states are kept.
        fleet: Who takes part, and how unseen devices adapt.
        aggregator: How updates become one, where devices send any.
    """

    model: TrainableModel
    data: FederatedData
    strategy: Strategy
    plan: TrainingPlan
    seed: int
    storage: Storage
    fleet: Fleet
    aggregator: Aggregator = field(default_factory=Mean)

    @property
    def participants(self) -> int:
        """The number of devices that cohorts are drawn from."""
        return self.data.devices - (0 if self.strategy.alone else self.fleet.unseen)

    @property
    def cohort(self) -> int:
        """The number of devices that each round is begun with."""
        return self.participants if self.strategy.alone else self.fleet.cohort or self.participants

    @property
    def task(self) -> str:
        """The kind of task: `classification` or `regression`."""
        return "regression" if self.model.loss in REGRESSIONS else "classification"

    @property
    def effective_aggregator(self) -> Aggregator:
        """The aggregator that has a say: none but the default where devices learn alone and send nothing."""
        return Mean() if self.strategy.alone else self.aggregator

    def strategy_errors(self, where: str) -> AbstractContextManager[None]:
        """Turn what the strategy raises in the block into a `SimulationError`; a failure of LiteRT is not its own.

        Args:
            where: What the strategy does, such as `on device 3 in round 2`.
        """
        subject = f"strategy {self.strategy.name}: failed {where}"
        return user_code_errors(self.strategy, subject, SimulationError, passes=InvocationError, advice=ADVICE)

    def aggregator_errors(
        self, where: str, *, passes: type[OdtSimError] = InvocationError
    ) -> AbstractContextManager[None]:
        """Do the same for the aggregator."""
        aggregator = self.effective_aggregator
        subject = f"aggregator {aggregator.name}: failed {where}"
        return user_code_errors(aggregator, subject, SimulationError, passes=passes, advice=ADVICE)

    def cost(self, task: "Task") -> float:
        """Returns about how many examples a block's devices learn from or are measured on, and one more for each."""
        offsets = self.data.offsets[list(task.devices)]
        if task.kind != "train":
            return float((offsets[:, 3] - offsets[:, 0] + 1).sum())
        if self.plan.steps is not None:
            return float(len(task.devices) * (self.plan.steps * self.model.batch_size + 1))
        return float((self.plan.epochs * (offsets[:, 1] - offsets[:, 0]) + 1).sum())


@dataclass(frozen=True)
class Task:
    """One block's work.

    Attributes:
        kind: `train`; `evaluate` what is deployed; `final`, which measures all that is reported.
        round: The round to train, or whose outcome to evaluate.
        devices: The devices' ids, ascending.
        versions: The committed versions of the states of those devices that have one.
        stragglers: The ids of those devices that do a part of their work only.
    """

    kind: Literal["train", "evaluate", "final"]
    round: int
    devices: tuple[int, ...]
    versions: Mapping[int, Version] = field(default_factory=dict)
    stragglers: Set[int] = frozenset()

    def each(self) -> "list[Task]":
        """Returns a task for each device."""
        return [
            Task(self.kind, self.round, (device,), _only(self.versions, device), self.stragglers & {device})
            for device in self.devices
        ]


def _only(versions: Mapping[int, Version], device: int) -> Mapping[int, Version]:
    return {device: versions[device]} if device in versions else {}


@dataclass(frozen=True)
class Trained:
    """What a device, a block or a round did in training; empty as it stands.

    Attributes:
        sums: For each tensor of the updates the sum of `weight * tensor`, float64, in the order of the devices; of a single
            device the tensor itself, as it was sent. Empty where the aggregator asks for the single updates.
        layouts: For each tensor what its numbers are; None for a plain array.
        weight: The sum of the weights.
        contributed: The ids of the devices whose updates are in the sums.
        excluded: For each device that was left out why, by id.
        stateful: The ids of those that wrote a state, each with the file that holds it: the id of the first device in it.
        loss_sum: The sum of `weight * mean loss of the device's steps`.
        loss_weight: The sum of the weights of the devices that made a step.
        bytes_up: What the devices that contributed sent.
        train_calls: The steps that all of them made, those left out too; none of those that timed out.
        infer_calls: The batches of inference that they made, in the same way.
        each: The single updates, where the strategy or the aggregator asks for them.
        single: Whether this is a single device, whose tensors are yet to be weighted: they are half as many bytes.
        unweighted: The names of the tensors in whose sums all devices count alike.
    """

    sums: dict[str, NDArray[Any]] = field(default_factory=dict)
    layouts: dict[str, Layout | None] = field(default_factory=dict)
    weight: float = 0.0
    contributed: tuple[int, ...] = ()
    excluded: dict[int, str] = field(default_factory=dict)
    stateful: dict[int, int] = field(default_factory=dict)
    loss_sum: float = 0.0
    loss_weight: float = 0.0
    bytes_up: int = 0
    train_calls: int = 0
    infer_calls: int = 0
    each: dict[int, Update] = field(default_factory=dict)
    single: bool = False
    unweighted: frozenset[str] = frozenset()
