"""The contract of a personalization strategy, with federated averaging as the default.

A strategy has four methods. `init` and `aggregate` run on the coordinator; `local` and `deploy` run beside the device.
The base class is FedAvg; a new strategy overrides only what differs.

McMahan et al. 2017, Communication-Efficient Learning of Deep Networks from Decentralized Data, algorithm 1:
`w <- w + sum_i n_i (w_i - w) / sum_i n_i`, where `w_i` is `w` after the local epochs on the device's `n_i` examples.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.device import Device
from odt_sim.errors import StrategyError
from odt_sim.model.manifest import Parameter
from odt_sim.model.tensors import ServerState as ServerState
from odt_sim.model.tensors import Tensors as Tensors
from odt_sim.model.tensors import array_of as array_of
from odt_sim.model.tensors import read_only as read_only
from odt_sim.model.tensors import weights_of as weights_of
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Layout, Weights, is_finite

NOTHING = Layout(())
"""The layout of what travels where nothing does."""


@dataclass(frozen=True)
class Update:
    """The result of a device's local work.

    Attributes:
        tensors: Tensors to average over the cohort, by name.
        weight: Weight of the device in the average, above 0; by default its number of training examples.
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
        mean: Weighted mean of the updates' tensors by name, or the aggregator's result in its place; empty if no device
            contributed.
        weight: Sum of the weights.
        count: Number of updates.
        participants: Number of devices that cohorts are drawn from.
        each: Updates by device id; empty unless the strategy sets `keeps_updates`.
    """

    mean: Tensors
    weight: float
    count: int
    participants: int
    each: Mapping[int, Update] = field(default_factory=dict)


class Strategy:
    """A personalization algorithm; federated averaging by default.

    Attributes:
        needs: Required capabilities of the model, from `TrainableModel.capabilities`; checked before a run starts.
        keeps_updates: Whether `aggregate` needs the single updates; a mean is cheaper.
        alone: Whether nothing travels. There is then no cohort: every device trains in every round, unseen ones included.
        partial_work: Whether stragglers send the part of their work that they finished; otherwise the round drops them.
            See `Fleet.stragglers`.
        asynchronous: Whether updates, which are then changes of the tensor `weights`, may be applied one by one to later
            states than the devices received. See `Schedule.kind`.
        unweighted: Names of the update's tensors that are averaged with equal weights.
        reads_examples: Whether `local` or `deploy` reads examples, embeddings or outputs, which phones do not send.
    """

    needs: frozenset[str] = frozenset()
    keeps_updates: bool = False
    alone: bool = False
    partial_work: bool = False
    asynchronous: bool = True
    unweighted: frozenset[str] = frozenset()
    reads_examples: bool = False

    @property
    def name(self) -> str:
        """The name in records and reports: the module's for a shipped strategy, the class's for any other."""
        package, _, module = type(self).__module__.rpartition(".")
        return module if package == __package__ else type(self).__name__

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
        return ServerState({"weights": initial.select(initial.layout.select(lambda p: p.moves and self.shared(p)))})

    def message(self, broadcast: Tensors, device: int) -> Tensors:
        """Return the part of the broadcast that one device receives; its size counts as downloaded bytes.

        Args:
            broadcast: The server's broadcast.
            device: The device's id.
        """
        return broadcast

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Do a device's work for one round.

        Args:
            device: A device with the exported weights, fresh optimizer slots, and its `state` from earlier rounds.
            broadcast: The device's part of the broadcast; read-only.

        Returns:
            The update. Entries added to `device.state` are available in the next round.
        """
        shared = weights_of(broadcast)
        receive(device, broadcast)
        losses = device.train()
        trained = device.weights
        keep(device, trained, shared.layout)
        return Update({"weights": trained.select(shared.layout) - shared}, len(device.train_examples), losses)

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Return the state after a round; called only if at least one device contributed.

        Args:
            state: The state before the round; read-only, since an earlier round may be the one to report.
            updates: The combined updates of the round.
        """
        mean = weights_of(updates.mean)
        return ServerState({**state.broadcast, "weights": state.weights + mean}, state.private)

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Return the weights for this device's user, which are then evaluated. Changes to the device are discarded."""
        return receive(device, broadcast)

    def needed(self, model: TrainableModel) -> frozenset[str]:
        """Return `needs`, extended by requirements that depend on the model or the hyper-parameters."""
        return self.needs

    def check(self, model: TrainableModel) -> None:
        """Check that the model has all required capabilities.

        Raises:
            StrategyError: A capability is missing.
        """
        missing = sorted(self.needed(model) - model.capabilities)
        if missing:
            has = ", ".join(sorted(model.capabilities))
            raise StrategyError(
                f"strategy {self.name}: needs {', '.join(missing)}, which the model {model.name} lacks (it has {has}); "
                "export the model with it or choose another strategy"
            )


def trained_by_gradients(layout: Layout) -> Layout:
    """Return the layout of the parameters with a gradient: all but BatchNorm statistics and frozen parameters."""
    return layout.select(lambda p: p.role == "trainable")


def receive(device: Device, broadcast: Tensors) -> Weights:
    """Restore the broadcast weights and the device's own parameters; return all weights of the device."""
    recall(device)
    device.restore(weights_of(broadcast))
    return device.weights


def keep(device: Device, trained: Weights, shared: Layout) -> None:
    """Keep the parameters that do not travel on the device; frozen ones are already in its file."""
    own = device.model.moving
    if shared.parameters:
        own = own.select(lambda p: p.name not in shared.slices)
    if own.size:
        device.state["own"] = trained.select(own)


def recall(device: Device) -> None:
    """Restore the parameters stored by `keep`, if any."""
    own = device.state.get("own")
    if isinstance(own, Weights):
        device.restore(own)


def keep_optimizer(device: Device) -> None:
    """Keep the optimizer's slots on the device."""
    for i, slot in enumerate(device.optimizer_state()):
        device.state[f"optimizer.{i}"] = slot


def recall_optimizer(device: Device) -> None:
    """Restore the slots stored by `keep_optimizer`, if any, except the random states of layers such as Dropout."""
    slots = device.optimizer_state()
    for i in range(len(slots)):
        kept = device.state.get(f"optimizer.{i}")
        if kept is not None and i not in device.model.random_states:
            slots[i] = array_of(kept)
    if slots:
        device.restore_optimizer_state(slots)
