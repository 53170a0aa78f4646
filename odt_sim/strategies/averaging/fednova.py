"""FedNova: normalized averaging for devices that perform different numbers of steps.

Paper: Wang et al. 2020, Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization, section 4.
Rule: `w <- w + t sum_i p_i (w_i - w) / t_i`, with the number of steps t_i of device i, its share p_i of the examples and
`t = sum_i p_i t_i`. FedAvg is the case of equal t_i. Stragglers (`fleet.stragglers`) send partial work.
Travels: all weights, and the number of steps; BatchNorm statistics are averaged as in FedAvg.
Stays: nothing; optimizer slots start fresh every round, and Dropout draws as in FedAvg.
Deviations: plain SGD only, where a step's factor is 1; the paper also derives factors for momentum and a proximal term.
Unseen devices get the global weights.
Hyper-parameters: none of its own.
"""

from dataclasses import replace

import numpy as np

from odt_sim.device.device import Device
from odt_sim.model.tensors import array_of
from odt_sim.strategies.base import ServerState, Strategy, Tensors, Update, Updates, weights_of
from odt_sim.strategies.state import trained_by_gradients


class FedNova(Strategy):
    """Average of the mean change per step, times the mean number of steps."""

    needs = frozenset({"plain_sgd"})
    partial_work = True
    asynchronous = False

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Train as in FedAvg, and send the mean change per step."""
        update = super().local(device, broadcast)
        steps, change = len(update.losses), weights_of(update.tensors)
        mean = change.select(trained_by_gradients(change.layout)) * (1 / max(steps, 1))
        return replace(update, tensors={"weights": change.replace(mean), "steps": np.array([steps], np.float32)})

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Multiply the mean change per step by the mean number of steps."""
        change, steps = weights_of(updates.mean), float(array_of(updates.mean["steps"])[0])
        whole = change.replace(change.select(trained_by_gradients(change.layout)) * steps)
        return super().aggregate(state, replace(updates, mean={"weights": whole}))
