"""Ditto: a personal model on each device, kept close to the global one.

Paper: Li et al. 2021, Ditto: Fair and Robust Federated Learning Through Personalization, algorithm 1.
Rule: FedAvg on w; in addition `v <- v - lr (g(v) + regularization (v - w))` with w from the start of the round. A
device's user gets v.
Travels: w, BatchNorm statistics included, as in FedAvg.
Stays: v with its own statistics and, unlike w, its optimizer slots. v starts as the first w that the device receives.
Both models train in the same batches and with the same Dropout masks.
Deviations: none.
Unseen devices train v before deployment.
Hyper-parameters: `regularization`, 0..10, default 0.01, which validates best on three tasks (docs/evaluation.md; lambda in
the paper, which uses 0.1, 1 or 2; 0 trains v alone); `unseen_epochs`, 0..50, default 10.
"""

from odt_sim.device.device import Device
from odt_sim.strategies.base import Tensors, Update, weights_of
from odt_sim.strategies.two_models.personal import HeldNear, keep_own_model, train_own_model


class Ditto(HeldNear):
    """FedAvg, with a personal model on each device that a proximal term keeps close to the global one."""

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Train the global model, then the personal one."""
        update = super().local(device, broadcast)
        train_own_model(device, weights_of(broadcast), self.regularization)
        keep_own_model(device)
        return update
