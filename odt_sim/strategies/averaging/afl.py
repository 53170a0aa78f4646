"""Agnostic federated learning: a model optimized for the worst-case mixture of devices.

Paper: Mohri et al. 2019, Agnostic Federated Learning, algorithm 1 (Stochastic-AFL).
Rule: `w <- w + sum_i l_i (w_i - w) / sum_i l_i` over the cohort, and `l_i <- l_i + rate N / n F_i(w)` for its n devices,
where F_i is the loss of w before the round on the training examples of device i. Then l, with one weight for each of
the N devices that take part in training, is projected onto the simplex. l starts at 1 / N.
Travels: all weights, and F_i; BatchNorm statistics are averaged as weights are.
Stays: nothing; optimizer slots start fresh every round, and Dropout draws as in FedAvg. The server keeps l, and stores
all updates of a round.
Deviations: a device trains for the local epochs; the paper takes one stochastic gradient of the mixture's loss. With
the factor N / n, the expected step of a sampled cohort equals the step of all devices.
Unseen devices get the global weights.
Hyper-parameters: `rate`, 0 or above, default 0.01, which validates best on three tasks (docs/evaluation.md; gamma_lambda): 0
is FedAvg with equal weights; `server_learning_rate`, above 0, default 1.
"""

from collections.abc import Set
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.device import Device
from odt_sim.hyperparameters import number
from odt_sim.model.tensors import array_of
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import ServerState, Strategy, Tensors, Update, Updates, weights_of
from odt_sim.strategies.state import moved, receive

LOSS, DEVICES, MIXTURE, OTHERS = "loss", "devices", "mixture", "others"
"""In updates: the loss. In the state: devices that have sent updates, their weights, and the weight of any other."""


class AFL(Strategy):
    """Averaging in which the devices with the largest losses gain weight.

    Attributes:
        rate: Step size of the devices' weights, at least 0; 0 is FedAvg with equal weights.
    """

    keeps_updates = True
    asynchronous = False
    unused = frozenset({"weighting"})
    rate: float = number(0.01, search="tag(log,interval(0.001,1))")

    def init(self, initial: Weights) -> ServerState:
        """Return the exported weights and an empty mixture, since no device has sent an update yet."""
        known = {DEVICES: np.zeros(0, np.int64), MIXTURE: np.zeros(0), OTHERS: np.zeros(1)}
        return ServerState(super().init(initial).broadcast, known)

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Train as in FedAvg, and also send the loss before training."""
        receive(device, broadcast)
        loss = np.array([device.loss("train")])
        update = super().local(device, broadcast)
        return replace(update, tensors={**update.tensors, LOSS: loss})

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Average updates with the mixture's weights, and move the mixture towards the devices with large losses."""
        each = dict(sorted(updates.each.items()))
        devices, mixture = _mixture(state, each.keys(), updates.participants)
        places = np.searchsorted(devices, list(each))
        weights, model = mixture[places], state.weights
        if weights.any():
            model = moved(
                model, [weights_of(update.tensors) for update in each.values()], weights, self.server_learning_rate
            )
        losses = [float(array_of(update.tensors[LOSS])[0]) for update in each.values()]
        mixture[places] += self.rate * len(mixture) / len(each) * np.array(losses)
        after = projected(mixture)
        known = {DEVICES: devices, MIXTURE: after[: len(devices)], OTHERS: after[len(devices) : len(devices) + 1]}
        return ServerState({"weights": model}, known)


def _mixture(state: ServerState, cohort: Set[int], participants: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the devices of all rounds so far, ascending, and the weights of all devices, theirs first; sum 1."""
    devices, weights, others = (array_of(state.private[name]) for name in (DEVICES, MIXTURE, OTHERS))
    before = dict(zip(devices.tolist(), weights.tolist(), strict=True))
    other = float(others.sum())  # the array has at most one number
    known = sorted({*before, *cohort})
    values = [before.get(device, other) for device in known] + [other] * (participants - len(known))
    return np.array(known, np.int64), projected(np.array(values))


def projected(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the nearest point of the simplex: no number below 0, sum 1 (Duchi et al. 2008, algorithm of figure 1)."""
    descending = np.sort(values)[::-1]
    excess = (descending.cumsum() - 1) / np.arange(1, len(values) + 1)
    return np.asarray(np.maximum(values - excess[np.flatnonzero(descending > excess)[-1]], 0))
