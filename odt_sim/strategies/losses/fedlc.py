"""FedLC: logits calibrated by each device's class counts.

Paper: Zhang et al. 2022, Federated Learning with Label Distribution Skew via Logits Calibration, section 4.
Rule: FedAvg, with the cross-entropy of `z_c - tau n_c^(-1/4)` in local training, where z are the logits and n_c is the
number of the device's training examples of class c. Rare classes thus get larger margins.
Travels: all weights, BatchNorm statistics included, as in FedAvg.
Stays: nothing; optimizer slots start fresh every round, and Dropout draws as in FedAvg.
Deviations: the softmax runs over all classes; the paper's sum omits the label's class, so its loss has no minimum. The
margin between classes y and c, `tau (n_c^(-1/4) - n_y^(-1/4))`, is the same. A class without examples, where the rule
diverges, has probability 0.
Unseen devices get the global weights, without calibration, like all others.
Hyper-parameters: `tau`, 0 or above, default 1; 0 calibrates nothing, but still excludes absent classes.
"""

import numpy as np

from odt_sim.device.device import Device
from odt_sim.hyperparameters import number
from odt_sim.strategies.base import Strategy, Tensors, Update, weights_of
from odt_sim.strategies.classes import ABSENT, class_counts
from odt_sim.strategies.state import receive


class FedLC(Strategy):
    """FedAvg with a loss calibrated by class counts.

    Attributes:
        tau: Factor of the margins, at least 0.
    """

    needs = frozenset({"logit_shift"})
    reads_examples = True
    tau: float = number(1.0, search="interval(0.1,2)")

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Train with the calibrated loss."""
        shared, counts = weights_of(broadcast), class_counts(device)
        receive(device, broadcast)
        shift = np.where(counts > 0, -self.tau * np.maximum(counts, 1) ** -0.25, ABSENT)
        losses = device.train(inputs={"logit_shift": shift})
        return Update({"weights": device.change_since(shared)}, len(device.train_examples), losses)
