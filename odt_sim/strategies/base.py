"""The contract of a personalization strategy, and federated averaging as its default.

A strategy has four methods. `init` and `aggregate` run on the coordinator; `local` and `deploy` run beside the device. The
base class is FedAvg: a new strategy overrides what it does otherwise.

McMahan et al. 2017, Communication-Efficient Learning of Deep Networks from Decentralized Data, algorithm 1:
`w <- w + sum_i n_i (w_i - w) / sum_i n_i`, where `w_i` is `w` after the device's local epochs on its `n_i` examples.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.device import Device
from odt_sim.errors import StrategyError
from odt_sim.model.manifest import Parameter
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Layout, Weights, is_finite

Tensors = Mapping[str, Weights | NDArray[Any]]

NOTHING = Layout(())
"""The layout of what travels where nothing does."""


@dataclass(frozen=True)
class ServerState:
    """What the coordinator holds between two rounds.

    Attributes:
        broadcast: What goes out to the devices of a cohort: see `Strategy.message`.
        private: What never leaves the coordinator.
    """

    broadcast: Tensors
    private: Tensors = field(default_factory=dict)

    @property
    def weights(self) -> Weights:
        """The broadcast's `weights`."""
        return weights_of(self.broadcast)


@dataclass(frozen=True)
class Update:
    """What a device sends back.

    Attributes:
        tensors: What is averaged over the cohort, by name.
        weight: The device's weight in the average, above 0: its number of training examples.
        losses: The loss of each of its training steps.
    """

    tensors: Tensors
    weight: float
    losses: NDArray[np.float32]

    def isfinite(self) -> bool:
        """Whether no loss and no value is NaN or infinite."""
        return all(map(is_finite, (self.losses, *map(array_of, self.tensors.values()))))


@dataclass(frozen=True)
class Updates:
    """What a round brought in.

    Attributes:
        mean: The weighted mean of the updates' tensors, by name, or what else the run's aggregator makes of them; empty
            where no device contributed.
        weight: The sum of the weights.
        count: The number of updates.
        participants: The number of devices that take part in training at all: those that cohorts are drawn from.
        each: The updates by device id; empty unless the strategy says `keeps_updates`.
    """

    mean: Tensors
    weight: float
    count: int
    participants: int
    each: Mapping[int, Update] = field(default_factory=dict)


class Strategy:
    """A personalization algorithm; as it stands, federated averaging.

    Attributes:
        needs: What the model must have, of `TrainableModel.capabilities`. Checked before a run starts.
        keeps_updates: Whether `aggregate` needs the single updates; a mean is cheaper.
        alone: Whether nothing travels. Then there is no cohort to choose and nobody to learn from: every device trains in
            every round, those kept out of the others' training too.
        partial_work: Whether devices that are too slow for the round send what they did, fewer epochs of `device.plan`;
            else the round goes on without them. See `Fleet.stragglers`.
        unweighted: The names of those tensors of an update in whose mean all devices count alike, whatever they weigh.
    """

    needs: frozenset[str] = frozenset()
    keeps_updates: bool = False
    alone: bool = False
    partial_work: bool = False
    unweighted: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The strategy's name in records and reports: the module's of a shipped one, the class's of a user's own."""
        package, _, module = type(self).__module__.rpartition(".")
        return module if package == __package__ else type(self).__name__

    def shared(self, parameter: Parameter) -> bool:
        """Whether a parameter travels; what does not travel stays on the device from round to round.

        Frozen parameters never travel, whatever this says: every device has them in its file.
        """
        return True

    def init(self, initial: Weights) -> ServerState:
        """Returns the state before the first round.

        Args:
            initial: All the weights that the model was exported with.
        """
        return ServerState({"weights": initial.select(initial.layout.select(lambda p: p.moves and self.shared(p)))})

    def message(self, broadcast: Tensors, device: int) -> Tensors:
        """Returns what one device receives of the broadcast: what `local` and `deploy` get, and what it pays for in bytes.

        Everything, unless the server has something for each device.

        Args:
            broadcast: The server's broadcast.
            device: The device's id.
        """
        return broadcast

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Does a device's work of one round.

        Args:
            device: Holds the exported weights and fresh optimizer slots, and the `state` it kept in earlier rounds.
            broadcast: What it received of the server's broadcast; read-only.

        Returns:
            The update. What is put into `device.state` is there in the next round.
        """
        shared = weights_of(broadcast)
        receive(device, broadcast)
        losses = device.train()
        trained = device.weights
        keep(device, trained, shared.layout)
        return Update({"weights": trained.select(shared.layout) - shared}, len(device.train_examples), losses)

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Returns the state after a round; called only where at least one device contributed.

        Args:
            state: The state before the round; read-only, since the round to report may be an earlier one.
            updates: What the round brought in.
        """
        mean = weights_of(updates.mean)
        return ServerState({**state.broadcast, "weights": state.weights + mean}, state.private)

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Returns the weights that this device's user gets: what is evaluated. Nothing that it changes is kept."""
        return receive(device, broadcast)

    def needed(self, model: TrainableModel) -> frozenset[str]:
        """Returns `needs`, for a strategy to add what depends on the model or on its hyper-parameters."""
        return self.needs

    def check(self, model: TrainableModel) -> None:
        """Checks that the model has what the strategy needs.

        Raises:
            StrategyError: It lacks something.
        """
        missing = sorted(self.needed(model) - model.capabilities)
        if missing:
            has = ", ".join(sorted(model.capabilities))
            raise StrategyError(
                f"strategy {self.name}: needs {', '.join(missing)}, which the model {model.name} lacks (it has {has}); "
                "export the model with it or choose another strategy"
            )


def weights_of(tensors: Tensors, name: str = "weights") -> Weights:
    """Returns a named entry as `Weights`.

    Raises:
        StrategyError: There is none.
    """
    found = tensors.get(name)
    if not isinstance(found, Weights):
        raise StrategyError(f"expected {name!r} to be Weights, found {type(found).__name__}; set it in init and local")
    return found


def array_of(tensor: Weights | NDArray[Any]) -> NDArray[Any]:
    """Returns the numbers of a tensor."""
    return tensor.vector if isinstance(tensor, Weights) else tensor


def read_only(tensors: Tensors) -> Tensors:
    """Returns views that cannot be written to: how devices receive what the server sends."""

    def view(array: NDArray[Any]) -> NDArray[Any]:
        array = array.view()
        array.flags.writeable = False
        return array

    return {
        name: Weights(tensor.layout, view(tensor.vector)) if isinstance(tensor, Weights) else view(tensor)
        for name, tensor in tensors.items()
    }


def trained_by_gradients(layout: Layout) -> Layout:
    """Returns the layout of what has a gradient: all but BatchNorm statistics and frozen parameters."""
    return layout.select(lambda p: p.role == "trainable")


def receive(device: Device, broadcast: Tensors) -> Weights:
    """Puts what travels and what stays in place; returns all the weights that the device then has."""
    recall(device)
    device.restore(weights_of(broadcast))
    return device.weights


def keep(device: Device, trained: Weights, shared: Layout) -> None:
    """Keeps on the device the parameters that do not travel; frozen ones need not be kept."""
    own = device.model.moving
    if shared.parameters:
        own = own.select(lambda p: p.name not in shared.slices)
    if own.size:
        device.state["own"] = trained.select(own)


def recall(device: Device) -> None:
    """Puts back the parameters that `keep` kept; the exported ones stay where nothing was kept yet."""
    own = device.state.get("own")
    if isinstance(own, Weights):
        device.restore(own)


def keep_optimizer(device: Device) -> None:
    """Keeps the optimizer's slots on the device."""
    for i, slot in enumerate(device.optimizer_state()):
        device.state[f"optimizer.{i}"] = slot


def recall_optimizer(device: Device) -> None:
    """Puts back the slots that `keep_optimizer` kept, if any; a random layer begins each round with a seed of its own."""
    slots = device.optimizer_state()
    for i in range(len(slots)):
        kept = device.state.get(f"optimizer.{i}")
        if kept is not None and i not in device.model.random_states:
            slots[i] = array_of(kept)
    if slots:
        device.restore_optimizer_state(slots)
