"""APPLE: each device learns how much of every device's core model it needs.

Paper: Luo and Wu 2022, Adapt to Adaptation: Learning Personalization for Cross-Silo Federated Learning, algorithm 1.
Rule: device i has a core model w_i and a vector p of relations. On each batch, with the gradient g at `sum_j p_j w_j`,
both are updated from their values before the batch: `w_i <- w_i - lr p_i g` and
`p_j <- p_j - relation_rate (<g, w_j> + regularization s (p_j - q_j))` for all j. q contains the devices' shares of all
training examples and is the initial p, and `s = (1 + cos(pi r / decay_rounds)) / 2` in round r = 0, 1, ..., and 0 from
round `decay_rounds`. A device's user gets `sum_j p_j w_j`.
Travels: the core models of all other devices down, the device's own up, without BatchNorm statistics.
Stays: p, and the statistics, which are updated by the device's own batches. Plain SGD only, without slots; Dropout draws as
in FedAvg.
Memory: the server and every worker hold the core models of all devices, and a training device holds another copy: the
algorithm is meant for tens of devices. Each step makes two passes over them.
Deviations: in the first round, the server has no core models yet, so each core model trains alone (p_i = 1); the paper
starts from p = q and equal core models. A device that joins later enters with `p_j = q_j`, and the relations to the
others shrink by its share. All core models are downloaded; the paper can limit them. Its published program adds
momentum.
Unseen devices train the sum of all core models, weighted by their shares q, for `unseen_epochs` before deployment.
Hyper-parameters: `relation_rate`, 0 to 1, default 0.001; `regularization`, 0 or above, default 0.1 (mu); `decay_rounds`, 1
or more, default 16 (L; all three defaults are those of the published program for 160 rounds); `unseen_epochs`, 0..50,
default 10.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.device import Device
from odt_sim.hyperparameters import count, number
from odt_sim.model.tensors import array_of
from odt_sim.model.weights import Layout, Weights
from odt_sim.strategies.base import AVERAGING, ServerState, Strategy, Tensors, Update, Updates, weights_of
from odt_sim.strategies.state import recall
from odt_sim.strategies.two_models.personal import keep_whole

MODEL, EXAMPLES = "model.", "examples."
"""Prefixes of the names of a device's core model and its number of examples; the device id follows."""
OTHERS, RELATIONS = "others", "relations"
"""The ids of other devices in `device.state`, and the relations to them; the relation to the device itself is last."""


class Others(NamedTuple):
    """The core models that a device receives from the others, and its own.

    Attributes:
        layout: The parameters of a core model.
        ids: `[others]`, ascending.
        models: `[others + 1, size]`, their core models; the last row is for the device's own.
        examples: `[others]`, their numbers of training examples.
    """

    layout: Layout
    ids: NDArray[np.int64]
    models: NDArray[np.float32]
    examples: NDArray[np.float64]

    def shares(self, own: int) -> NDArray[np.float64]:
        """Return the shares q of all examples, `[others + 1]`; the last one is for the device with `own` examples."""
        examples = np.append(self.examples, own)
        return np.asarray(examples / examples.sum())

    def mixed(self, relations: NDArray[np.float64]) -> Weights:
        """Return the sum of all core models, weighted by relations; it is read-only, so that a device makes no copy."""
        vector = relations.astype(np.float32) @ self.models
        vector.flags.writeable = False
        return Weights(self.layout, vector)


class APPLE(Strategy):
    """Each device learns its core model and the weights by which it mixes all core models.

    Attributes:
        relation_rate: Step size of the relations, 0 to 1.
        regularization: Factor of the proximal term of the relations, at least 0.
        decay_rounds: Rounds over which the proximal term falls to 0, at least 1.
        unseen_epochs: Epochs for which a device that never trained, unseen or seen, trains the sum of all core models.
    """

    needs = frozenset({"plain_sgd", "learning_rate"})
    keeps_updates = True
    asynchronous = False
    unused = AVERAGING
    relation_rate: float = number(0.001, 0, 1, search="tag(log,interval(0.0001,0.1))")
    regularization: float = number(0.1, search="tag(log,interval(0.01,10))")
    decay_rounds: int = count(16, 1)
    unseen_epochs: int = count(10)

    def init(self, initial: Weights) -> ServerState:
        """Return no model, since no device has trained yet."""
        return ServerState({})

    def message(self, state: ServerState, device: int) -> Tensors:
        """Return the core models of all other devices."""
        own = {f"{MODEL}{device}", f"{EXAMPLES}{device}"}
        return {name: tensor for name, tensor in state.broadcast.items() if name not in own}

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Train the core model and the relations, and send the core model."""
        recall(device)
        others = _others(device, broadcast)
        core, relations, losses = self._train(device, others, _relations(device, others))
        keep_whole(device, device.weights.replace(core))
        if len(others.ids):
            device.state |= {OTHERS: others.ids, RELATIONS: relations}
        return Update({"weights": core}, len(device.train_examples), losses)

    def _train(
        self, device: Device, others: Others, relations: NDArray[np.float64]
    ) -> tuple[Weights, NDArray[np.float64], NDArray[np.float32]]:
        """Return the core model, the relations and the losses of the mixture after the plan's steps."""
        models, layout = others.models, others.layout
        core, losses = models[-1], []
        shares = others.shares(len(device.train_examples))
        pull = self.regularization * self._schedule(device.round - 1)
        for batch in device.batches():
            rate = device.learning_rate()
            mixed = others.mixed(relations)
            device.restore(mixed)
            losses.append(device.train_step(batch))
            descent = (mixed - device.weights.select(layout)).vector  # learning rate times gradient
            before = relations
            if len(others.ids):
                slopes = models @ descent / rate
                relations = before - self.relation_rate * (slopes + pull * (before - shares))
            descent *= np.float32(before[-1])
            core -= descent
        return Weights(layout, core.copy()), relations, np.array(losses, np.float32)

    def _schedule(self, round: int) -> float:
        """Return the factor of the proximal term in a round, counted from 0."""
        return (1 + math.cos(math.pi * round / self.decay_rounds)) / 2 if round < self.decay_rounds else 0.0

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Replace the core models of the devices that contributed."""
        models = {f"{MODEL}{id}": weights_of(update.tensors) for id, update in updates.each.items()}
        examples = {f"{EXAMPLES}{id}": np.array([update.weight]) for id, update in updates.each.items()}
        return ServerState({**state.broadcast, **models, **examples})

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Return the device's mixture of all core models."""
        recall(device)
        others = _others(device, broadcast)
        new = "own" not in device.state
        relations = others.shares(0) if new and len(others.ids) else _relations(device, others)
        device.restore(others.mixed(relations))
        if new:
            device.train(self.unseen_epochs)
        return device.weights


def _others(device: Device, broadcast: Tensors) -> Others:
    """Return the received core models in ascending order of ids, followed by the device's own."""
    own = device.weights.select(device.model.trainable_layout)
    ids = sorted(int(name.removeprefix(MODEL)) for name in broadcast if name.startswith(MODEL))
    models = [weights_of(broadcast, f"{MODEL}{id}").vector for id in ids]
    examples = [float(array_of(broadcast[f"{EXAMPLES}{id}"])[0]) for id in ids]
    return Others(own.layout, np.array(ids, np.int64), np.stack([*models, own.vector]), np.array(examples, np.float64))


def _relations(device: Device, others: Others) -> NDArray[np.float64]:
    """Return the device's relations to the others and, last, to itself; those to new devices start at q."""
    relations = others.shares(len(device.train_examples))
    if OTHERS in device.state:
        known = np.isin(others.ids, array_of(device.state[OTHERS]))
        left = 1.0 if known.all() else 1.0 - relations[:-1][~known].sum()
        relations[np.append(known, True)] = left * array_of(device.state[RELATIONS])
    return relations
