"""The messages between the coordinator and its workers: a run's job, a block's task and its result."""

from collections.abc import Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from odt_sim._support.user_code import user_code_errors
from odt_sim.aggregators.base import Aggregator
from odt_sim.aggregators.mean import Mean
from odt_sim.attacks.base import Attack
from odt_sim.data.devices.federated import FederatedData
from odt_sim.device.engines import LITERT, RuntimeChoice
from odt_sim.device.plan import TrainingPlan
from odt_sim.errors import InvocationError, OdtSimError, SimulationError
from odt_sim.metrics.own import OwnMetric
from odt_sim.metrics.tasks import model_metrics, model_task
from odt_sim.model.tensors import read_only
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Layout
from odt_sim.persistence.storage import Storage
from odt_sim.persistence.versions import Version
from odt_sim.settings import Fleet
from odt_sim.simulation.run.cohort import choose_hostile
from odt_sim.strategies.base import Strategy, Tensors, Update

ADVICE = "correct it; to debug it, use backend=serial"


@dataclass(frozen=True)
class Job:
    """The constants of a run, which every worker has.

    `rounds` is the maximum number of rounds, for a backend that plans ahead; 0 if it is unknown.
    """

    model: TrainableModel
    data: FederatedData
    strategy: Strategy
    plan: TrainingPlan
    seed: int
    storage: Storage
    fleet: Fleet
    aggregator: Aggregator = field(default_factory=Mean)
    runtime: RuntimeChoice = LITERT
    own_metrics: tuple[OwnMetric, ...] = ()
    metric: str | None = None
    rounds: int = 0
    attack: Attack = field(default_factory=Attack)

    @property
    def hostile(self) -> frozenset[int]:
        """The ids of the devices that attack; no metric includes them."""
        return choose_hostile(self.data.devices, self.fleet.unseen, self.fleet.hostile, self.seed)

    @property
    def participants(self) -> int:
        """The number of devices from which cohorts are drawn."""
        return self.data.devices - (0 if self.strategy.alone else self.fleet.unseen_count)

    @property
    def cohort(self) -> int:
        """The number of devices in a round."""
        return self.participants if self.strategy.alone else self.fleet.cohort or self.participants

    @property
    def task(self) -> str:
        """The task of the model."""
        return model_task(self.model)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the model, then the user's; `metric` moves one to the front. Strategies compare by the first."""
        known = (*model_metrics(self.model), *(own.name for own in self.own_metrics))
        return known if self.metric is None else (self.metric, *(name for name in known if name != self.metric))

    @property
    def effective_aggregator(self) -> Aggregator:
        """The aggregator in use: `Mean` for strategies that send nothing."""
        return Mean() if self.strategy.alone else self.aggregator

    def strategy_errors(self, where: str) -> AbstractContextManager[None]:
        """Turn errors of the strategy into a `SimulationError`, except failures of LiteRT.

        Args:
            where: The place in the run, such as `on device 3 in round 2`.
        """
        subject = f"strategy {self.strategy.name}: failed {where}"
        return user_code_errors(self.strategy, subject, SimulationError, passes=InvocationError, advice=ADVICE)

    def aggregator_errors(
        self, where: str, *, passes: type[OdtSimError] = InvocationError
    ) -> AbstractContextManager[None]:
        """Turn errors of the aggregator into a `SimulationError`, except those of the type `passes`."""
        aggregator = self.effective_aggregator
        subject = f"aggregator {aggregator.name}: failed {where}"
        return user_code_errors(aggregator, subject, SimulationError, passes=passes, advice=ADVICE)

    def attack_errors(self, where: str, *, passes: type[OdtSimError] = InvocationError) -> AbstractContextManager[None]:
        """Turn errors of the attack and its strategy into a `SimulationError`, except those of the type `passes`."""
        subject = f"attack {self.attack.name}: failed {where}"
        return user_code_errors(self.attack, subject, SimulationError, passes=passes, advice=ADVICE)

    def costs(self, tasks: Sequence["Task"]) -> list[float]:
        """Return for each block the approximate number of examples that it processes, plus its number of devices.

        All tasks must be of one kind.
        """
        if not tasks:
            return []
        sizes = [len(task.devices) for task in tasks]
        if tasks[0].kind == "train" and self.plan.steps is not None:
            return [float(size * (self.plan.steps * self.model.batch_size + 1)) for size in sizes]
        of_devices = self._costs[tasks[0].kind == "train"][[id for task in tasks for id in task.devices]]
        if len(of_devices) > len(tasks):
            of_devices = np.add.reduceat(of_devices, [*accumulate(sizes[:-1], initial=0)])
        return cast(list[float], of_devices.tolist())

    @cached_property
    def _costs(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The costs of an evaluation and of a round's epochs, by device."""
        begin, trained, _, end = self.data.offsets.T
        examples = (end - begin, self.plan.epochs * (trained - begin))
        evaluation, training = (count.astype(np.float64) + 1 for count in examples)
        return evaluation, training


@dataclass(frozen=True)
class Message:
    """The message to one device.

    Attributes:
        shared: Names of tensors in the broadcast, by their names in the message.
        own: The tensors that only this device receives.
    """

    shared: Mapping[str, str]
    own: Tensors

    def received(self, broadcast: Tensors) -> Tensors:
        """Return all tensors of the message, given the server's broadcast."""
        return {**{name: broadcast[given] for name, given in self.shared.items()}, **read_only(self.own)}


@dataclass(frozen=True)
class Task:
    """The work of one block.

    Attributes:
        kind: `train`, `evaluate`, or `final`, which adds the columns that are measured once.
        round: The round to train or to evaluate.
        devices: The devices' ids, ascending.
        versions: The committed versions of the devices' states; a device without a state is absent.
        stragglers: The ids of the devices that do only part of their work.
        units: The epochs or steps of devices that do only part of the plan, by id.
        factors: The factors of stale updates, by device id.
        saves: The round that names the state files; None for `round`, which always seeds the randomness.
        utility: Whether to measure the devices' statistical utility, for selection by utility.
        messages: What each device receives, by id; empty if all receive the whole broadcast.
    """

    kind: Literal["train", "evaluate", "final"]
    round: int
    devices: tuple[int, ...]
    versions: Mapping[int, Version] = field(default_factory=dict)
    stragglers: Set[int] = frozenset()
    units: Mapping[int, int] = field(default_factory=dict)
    factors: Mapping[int, float] = field(default_factory=dict)
    saves: int | None = None
    utility: bool = False
    messages: Mapping[int, Message] = field(default_factory=dict)

    @property
    def state_round(self) -> int:
        """The round that names the files of the devices' states."""
        return self.round if self.saves is None else self.saves

    def received(self, device: int, broadcast: Tensors) -> Tensors:
        """Return what a device receives, given the server's broadcast.

        Each device gets a mapping of its own, so that entries that a strategy adds to it do not reach other devices.
        """
        return self.messages[device].received(broadcast) if self.messages else dict(broadcast)

    def each(self) -> "list[Task]":
        """Return a task for each device."""
        versions = self.versions
        return [
            replace(
                self,
                devices=(id,),
                versions={id: versions[id]} if id in versions else {},
                stragglers=self.stragglers & {id},
                messages={id: self.messages[id]} if self.messages else {},
            )
            for id in self.devices
        ]


@dataclass
class Trained:
    """The outcome of training for a device, a block or a round.

    Attributes:
        sums: The sum of `weight * tensor` for each tensor of the updates, float64; for a single device the tensor as
            sent. Empty if the aggregator asks for the individual updates.
        layouts: The layout of each tensor; None for a plain array.
        weight: The sum of the weights.
        contributed: The ids of the devices in the sums.
        excluded: The reasons of the excluded devices, by id.
        stateful: The files of the devices that wrote a state, by id; a file is named by the first device in it.
        loss_sum: The sum of `weight * mean loss of the device's steps`; it leaves hostile devices out.
        loss_weight: The sum of the weights of the devices in `loss_sum`: those that made a step.
        bytes_up: The bytes that devices sent, including excluded updates.
        train_calls: The training steps of all devices; of excluded ones those of complete calls of `Device.train`, and none
            of those that timed out.
        infer_calls: The inference batches of the same devices.
        each: The individual updates, if the strategy or the aggregator asks for them.
        single: Whether this is one device, whose tensors are not weighted yet: as float32 they take half the bytes.
        unweighted: The names of the tensors for which all devices count equally.
        utilities: The statistical utility of each device, by id, if the task asks for it.
        uneven: The names of tensors that only some of the devices sent.
    """

    sums: dict[str, NDArray[Any]] = field(default_factory=dict)
    layouts: dict[str, Layout | None] = field(default_factory=dict)
    weight: float = 0.0
    contributed: list[int] = field(default_factory=list)
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
    utilities: dict[int, float] = field(default_factory=dict)
    uneven: frozenset[str] = frozenset()
