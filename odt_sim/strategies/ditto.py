"""Ditto: a model of each device's own, held near the global one.

Li et al. 2021, Ditto: Fair and Robust Federated Learning Through Personalization, algorithm 1.
Rule: FedAvg on w; beside it `v <- v - lr (g(v) + regularization (v - w))`, w being what the round began with; a device's user
gets v.
Travels: w, BatchNorm statistics included, as in FedAvg. Stays: v with statistics of its own and, unlike w, its optimizer's
slots. Both train in the same batches and under the same Dropout masks. v begins with the first w that its device receives.
Unseen devices train such a v before they are deployed to.
Hyper-parameters: `regularization`, 0..10, default 1 (lambda in the paper, which takes 0.1, 1 or 2; 0 trains v alone);
`unseen_epochs`, 0..50, default 10.
"""

from odt_sim.device.device import Device
from odt_sim.strategies.base import Tensors, Update, weights_of
from odt_sim.strategies.own_model import HeldNear, keep_own_model, train_own_model


class Ditto(HeldNear):
    """FedAvg, and on each device a model of its own that a proximal term holds near."""

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Trains the global model, then the device's own."""
        update = super().local(device, broadcast)
        train_own_model(device, weights_of(broadcast), self.regularization)
        keep_own_model(device)
        return update
