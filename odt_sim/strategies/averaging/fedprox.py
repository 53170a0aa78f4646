"""FedProx: a proximal term and partial work of stragglers.

Paper: Li et al. 2020, Federated Optimization in Heterogeneous Networks, algorithm 2.
Rule: a local step uses `g + mu (w - w0)` instead of the gradient `g`, where `w` is the value before the step and `w0`
the value at the start of the round. The server averages as in FedAvg. Stragglers (`fleet.stragglers`) are not dropped:
they train for fewer epochs, drawn uniformly from 1 to `train.epochs - 1`, or fewer steps if `train.steps` is set, and
count like any other device.
Travels: all weights, BatchNorm statistics included; the proximal term ignores the statistics.
Stays: nothing; optimizer slots start fresh every round, and Dropout draws as in FedAvg.
Deviations: none; the paper uses 0, 50 and 90 % stragglers.
Optimizers other than plain SGD minimize the same objective if the model was exported with `gradient_offset=True`.
Unseen devices get the global weights.
Hyper-parameters: `mu`, 0.001..1, default 0.01, which validates best on three tasks (docs/evaluation.md); the paper
chose 1 on three of its five data sets. 0 is FedAvg, except for stragglers.
"""

from odt_sim.device.device import Device
from odt_sim.hyperparameters import number
from odt_sim.strategies.base import Strategy, Tensors, Update
from odt_sim.strategies.state import receive


class FedProx(Strategy):
    """FedAvg with a proximal term and partial work.

    Attributes:
        mu: Factor of the proximal term, at least 0; 0 is FedAvg.
    """

    needs = frozenset({"gradient_offset"})
    partial_work = True
    mu: float = number(0.01, search="tag(log,interval(0.001,10))")

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Minimize `loss + mu/2 |w - w0|^2` for as many epochs as the device can complete."""
        start = receive(device, broadcast).select(device.model.trainable_layout)
        device.set_gradient_offset(-self.mu * start, self.mu)
        return super().local(device, broadcast)
