"""FedProx: a proximal term holds the local weights near the global ones, and slow devices send what they have.

Li et al. 2020, Federated Optimization in Heterogeneous Networks, algorithm 2.
Rule: a local step uses `g + mu (w - w0)` in place of the gradient `g`, `w` being the weights before the step and `w0`
those that the device began the round with. The server averages as in FedAvg. Stragglers are not dropped: they train for
fewer epochs, drawn uniformly from 1 to one below `train.epochs`, or fewer steps where `train.steps` is set, and count as any
other device. `fleet.stragglers` says how many there are; the paper has 0, 0.5 and 0.9 of a round's devices.
Travels: all weights, BatchNorm statistics included; these are averaged and no proximal term pulls at them. Stays:
nothing; the optimizer's slots start fresh every round, and Dropout draws as in FedAvg. Optimizers other than plain SGD
minimize the same objective, if the model was exported with `gradient_offset=True`.
Unseen devices get the global weights.
Hyper-parameters: `mu`, 0.001..1, default 1, the best in the paper on three of its five data sets; 0 is FedAvg, but for
stragglers.
"""

from odt_sim.device.device import Device
from odt_sim.hyperparameters import checked
from odt_sim.strategies.base import Strategy, Tensors, Update, receive


class FedProx(Strategy):
    """FedAvg with a proximal term and with partial work."""

    needs = frozenset({"gradient_offset"})
    partial_work = True

    def __init__(self, mu: float = 1.0) -> None:
        """Sets the pull of the global weights.

        Args:
            mu: The factor of the proximal term.
        """
        self.mu = checked("mu", mu, 0)

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Minimizes `loss + mu/2 |w - w0|^2` for as long as the device can."""
        start = receive(device, broadcast).select(device.model.trainable_layout)
        device.set_gradient_offset(-self.mu * start, self.mu)
        return super().local(device, broadcast)
