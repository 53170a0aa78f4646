"""MR-MTL: each device trains a personal model, kept close to the mean of all.

Paper: Liu et al. 2022, On Privacy and Personalization in Cross-Silo Federated Learning, section 3: mean-regularized
multi-task learning, after Evgeniou and Pontil 2004, Regularized Multi-Task Learning.
Rule: `w_i <- w_i - lr (g(w_i) + regularization (w_i - w))` with w from the start of the round; then
`w <- sum_i n_i w_i / sum_i n_i` over the cohort. A device's user gets w_i. Unlike Ditto, no global model is trained, so
each device trains once.
Travels: w_i up and w down, BatchNorm statistics included, as in FedAvg.
Stays: w_i with its statistics and optimizer slots; Dropout draws as in FedAvg. w_i starts as the first w that the device
receives.
Deviations: only a cohort takes part in a round; in the paper, all devices do.
Unseen devices train w_i before deployment.
Hyper-parameters: `regularization`, 0..10, default 0.01, which validates best on three tasks (docs/evaluation.md; lambda
in the paper; 0 is local training, a large value keeps all close to one model); `unseen_epochs`, 0..50, default 10.
"""

from odt_sim.device.device import Device
from odt_sim.strategies.base import Tensors, Update, weights_of
from odt_sim.strategies.two_models.personal import HeldNear, keep_own_model, train_own_model


class MRMTL(HeldNear):
    """A personal model on each device that a proximal term keeps close to the mean of all."""

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Train the personal model and send its difference from the mean."""
        mean = weights_of(broadcast)
        losses = train_own_model(device, mean, self.regularization)
        keep_own_model(device)
        own = device.weights.select(mean.layout)
        return Update({"weights": own - mean}, len(device.train_examples), losses)
