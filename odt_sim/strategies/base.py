"""The contract of a personalization strategy, with federated averaging as the default.

A strategy has six methods. `init`, `cohort`, `message` and `aggregate` run on the coordinator; `local` and `deploy` run
on the worker that runs the device. The base class is FedAvg; a new strategy overrides only what differs.

McMahan et al. 2017, Communication-Efficient Learning of Deep Networks from Decentralized Data, algorithm 1:
`w <- w + sum_i n_i (w_i - w) / sum_i n_i`, where `w_i` is `w` after the local epochs on the device's `n_i` examples.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, ClassVar, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from odt_sim._support.checks import ALIKE, warn_of_misspelt
from odt_sim._support.user_code import name_of, repr_of
from odt_sim.device.device import Device
from odt_sim.errors import StrategyError
from odt_sim.hyperparameters import Configured, choice, number
from odt_sim.model.contract.manifest import Parameter
from odt_sim.model.tensors import ServerState as ServerState
from odt_sim.model.tensors import Tensors as Tensors
from odt_sim.model.tensors import array_of
from odt_sim.model.tensors import weights_of as weights_of
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights, is_finite
from odt_sim.strategies.state import keep, receive, stepped

Weighting = Literal["by_examples", "uniform"]

AVERAGING = frozenset({"server_learning_rate", "weighting"})
"""The hyper-parameters of all strategies that average weights."""


@dataclass(frozen=True)
class Update:
    """The result of a device's local work.

    Attributes:
        tensors: Tensors to average over the cohort, by name. The base class's `aggregate` adds the mean of `weights` to
            the server's weights, so `weights` must be the change since `broadcast`, not the trained weights.
        weight: Weight of the device in the average, above 0; by default its number of training examples. Unused with
            `weighting=uniform`.
        losses: `[steps]`, the loss of each training step.
    """

    tensors: Tensors
    weight: float
    losses: NDArray[np.float32]

    def isfinite(self) -> bool:
        """Return whether all losses and values are finite."""
        return all(map(is_finite, (self.losses, *map(array_of, self.tensors.values()))))


@dataclass(frozen=True)
class Updates:
    """The combined updates of a round.

    Attributes:
        mean: Weighted mean of the updates' tensors by name, or the aggregator's result instead; empty if no device
            contributed. All updates count: a tensor that a device did not send counts as 0.
        weight: Sum of the weights.
        count: Number of updates.
        participants: Number of devices that cohorts are drawn from.
        each: Updates by device id; in a run, an error unless the strategy sets `keeps_updates`.
    """

    mean: Tensors
    weight: float
    count: int
    participants: int
    each: Mapping[int, Update] = field(default_factory=dict)


class Unkept(Mapping[int, Update]):
    """`Updates.each` of a strategy without `keeps_updates`, which refuses any use: an empty mapping would mislead."""

    def __getitem__(self, device: int) -> Update:
        """Refuse to return an update."""
        self._refuse()

    def __iter__(self) -> Iterator[int]:
        """Refuse to list the devices."""
        self._refuse()

    def __len__(self) -> int:
        """Refuse to count the devices."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise StrategyError("updates.each has no updates; set keeps_updates = True in the strategy's class")


class Strategy(Configured):
    """A personalization algorithm; federated averaging by default.

    Attributes:
        needs: Required capabilities of the model, from `TrainableModel.capabilities`; checked before a run starts.
        keeps_updates: Whether `aggregate` needs the single updates; a mean is cheaper.
        alone: Whether nothing travels. There is then no cohort: every device trains in every round, including unseen
            ones.
        partial_work: Whether stragglers send the work that they finished; otherwise the round drops them.
            See `Fleet.stragglers`.
        asynchronous: Whether updates, which are then changes of the tensor `weights`, may be applied one by one to later
            states than the devices received. See `Schedule.kind`.
        unweighted: Names of the update's tensors that are averaged with equal weights.
        not_averaged: Names of the update's tensors that reach `aggregate` only in `Updates.each`, which `keeps_updates`
            fills; their shapes may differ between devices.
        reads_examples: Whether `local` or `deploy` reads examples, embeddings or outputs, which phones do not send.
        without_validation: What users get if no device has the validation examples by which the strategy chooses; a run
            warns about it. None for a strategy that makes no such choice.
        server_learning_rate: Factor of the mean change on the server, above 0; 1 replaces the weights by the mean.
        weighting: Weights of devices in the mean: `by_examples`, the number of training examples, or `uniform`.
    """

    _group = "strategy"
    needs: ClassVar[frozenset[str]] = frozenset()
    keeps_updates: ClassVar[bool] = False
    alone: ClassVar[bool] = False
    partial_work: ClassVar[bool] = False
    asynchronous: ClassVar[bool] = True
    unweighted: ClassVar[frozenset[str]] = frozenset()
    not_averaged: ClassVar[frozenset[str]] = frozenset()
    reads_examples: ClassVar[bool] = False
    without_validation: ClassVar[str | None] = None
    server_learning_rate: float = number(1.0, above=True, kw_only=True)
    weighting: Weighting = choice("by_examples", "uniform", kw_only=True)

    def __init_subclass__(cls, **options: Any) -> None:
        """Check that names are given as sets, since text would be a set of letters, and that no member is misspelt."""
        super().__init_subclass__(**options)
        warn_of_misspelt(cls, Strategy, cls.hyperparameters)
        for attribute in ("needs", "unweighted", "not_averaged"):
            names = vars(cls).get(attribute)
            if isinstance(names, str | list | tuple):
                listed = ", ".join(map(repr, [names] if isinstance(names, str) else names))
                raise StrategyError(
                    f"{cls.__name__}.{attribute}: expected a set of names, found {names!r}; write frozenset({{{listed}}})"
                )

    def __repr__(self) -> str:
        """Return the class with its settings, in one line."""
        return repr_of(self)

    @property
    def name(self) -> str:
        """The name in records and reports: the module's for a shipped strategy, the class's for any other."""
        return name_of(self, __package__)

    def shared(self, parameter: Parameter) -> bool:
        """Return whether a parameter travels; all others stay on the device from round to round.

        Frozen parameters never travel: every device has them in its file.
        """
        return True

    def init(self, initial: Weights) -> ServerState:
        """Return the state before the first round.

        Args:
            initial: All weights of the exported model.
        """
        return ServerState({"weights": initial.select(initial.layout.select(lambda p: p.moves and self._travels(p)))})

    def _travels(self, parameter: Parameter) -> bool:
        travels = self.shared(parameter)
        if travels is None:  # a forgotten `return`, by which nothing would travel
            raise StrategyError(f"shared returned None for the parameter {parameter.name}; return True or False")
        return travels

    def message(self, state: ServerState, device: int) -> Tensors:
        """Return what one device receives; its size counts as downloaded bytes.

        Runs on the coordinator, only for the devices of a cohort, when a device's block starts. By default, all receive
        the broadcast. Tensors of the broadcast that are returned unchanged travel once to each worker; others travel
        with the device's block.

        Args:
            state: The server's state; read-only.
            device: The device's id.
        """
        return state.broadcast

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Do a device's work for one round.

        Args:
            device: A device with the exported weights, fresh optimizer slots, and its `state` from earlier rounds.
            broadcast: What the device receives, from `message`; read-only.

        Returns:
            The update. Entries added to `device.state` are available in the next round.
        """
        shared = weights_of(broadcast)
        receive(device, broadcast)
        losses = device.train()
        if shared.layout != device.model.moving:  # else nothing is kept, and the weights need not be copied
            keep(device, device.weights, shared.layout)
        return Update({"weights": device.change_since(shared)}, len(device.train_examples), losses)

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Return the state after a round; called only if at least one device contributed.

        Args:
            state: The state before the round; read-only, since an earlier round may be the one to report.
            updates: The combined updates of the round.
        """
        after = stepped(state.weights, weights_of(updates.mean), self.server_learning_rate)
        return ServerState({**state.broadcast, "weights": after}, state.private)

    def cohort(self, state: ServerState, round: int, available: Sequence[int]) -> Sequence[int] | None:
        """Return the devices of a round, or None to have `fleet.cohort` of them drawn at random.

        The choice must depend only on the arguments, so that a resumed run repeats it.

        Args:
            state: The server's state; read-only.
            round: The round.
            available: The ids of the devices that take part in training and are not quarantined, ascending.
        """
        return None

    # `Any` stands for `Predictor`: the weights of `super().deploy(...)`, the usual case, need no check of their type.
    def deploy(self, device: Device, broadcast: Tensors) -> Weights | Any:
        """Return the weights for this device's user, or a `Predictor` to evaluate instead.

        Changes to the device are discarded.
        """
        return receive(device, broadcast)

    def needed(self, model: TrainableModel) -> frozenset[str]:
        """Return `needs`, extended by requirements that depend on the model or the hyper-parameters."""
        return self.needs

    def wanted(self, model: TrainableModel) -> frozenset[str]:
        """Return `needed`, extended by capabilities that a Keras model is exported with, but that a file may lack."""
        return self.needed(model)

    def check(self, model: TrainableModel) -> None:
        """Check that the model has all required capabilities.

        Raises:
            StrategyError: A capability is missing.
        """
        missing = sorted(self.needed(model) - model.capabilities)
        if missing:
            alike = [known for name in missing for known in get_close_matches(name, model.capabilities, 1, ALIKE)]
            has = f" (it has {', '.join(alike)})" if alike else ""
            plain = " (plain_sgd: SGD without momentum, clipping and weight decay)" if "plain_sgd" in missing else ""
            raise StrategyError(
                f"strategy {self.name}: needs {', '.join(missing)}, which the model {model.name} lacks{has}; "
                f"export the model with it{plain} or choose another strategy"
            )
