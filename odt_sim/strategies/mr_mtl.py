"""MR-MTL: each device trains a model of its own, held near the mean of all of them.

Liu et al. 2022, On Privacy and Personalization in Cross-Silo Federated Learning, section 3: mean-regularized multi-task
learning, of which Evgeniou and Pontil 2004, Regularized Multi-Task Learning, is the origin.
Rule: `w_i <- w_i - lr (g(w_i) + regularization (w_i - w))`, w being what the round began with; then `w <- sum_i n_i w_i /
sum_i n_i` over the cohort; a device's user gets w_i. Unlike Ditto's, w is no model that is trained itself, so a device works
once. The paper has all devices in every round.
Travels: w_i up and w down, BatchNorm statistics included, as in FedAvg. Stays: w_i with its statistics and the optimizer's
slots; Dropout draws as in FedAvg. w_i begins with the first w that its device receives.
Unseen devices train such a w_i before they are deployed to.
Hyper-parameters: `regularization`, 0..10, default 1 (lambda in the paper; 0 is training alone, large holds all near one
model); `unseen_epochs`, 0..50, default 10.
"""

from odt_sim.device.device import Device
from odt_sim.strategies.base import Tensors, Update, weights_of
from odt_sim.strategies.own_model import HeldNear, keep_own_model, train_own_model


class MRMTL(HeldNear):
    """On each device a model of its own that a proximal term holds near the mean of all."""

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Trains the device's own model and sends how far it is from the mean."""
        mean = weights_of(broadcast)
        losses = train_own_model(device, mean, self.regularization)
        keep_own_model(device)
        own = device.weights.select(mean.layout)
        return Update({"weights": own - mean}, len(device.train_examples), losses)
