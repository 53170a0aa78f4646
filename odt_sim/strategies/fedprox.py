"""FedProx: a proximal term holds the local weights near the global ones, and slow devices send what they have.

Li et al. 2020, Federated Optimization in Heterogeneous Networks, algorithm 2.
Rule: a local step uses `g + mu (w - w0)` in place of the gradient `g`, `w` being the weights before the step and `w0`
those that the device began the round with. The server averages as in FedAvg. Stragglers are not dropped: they train for
fewer epochs, drawn uniformly from 1 to one below `train.epochs` (of a single epoch there is no part), or fewer steps where
`train.steps` is set, and count as any other device.
Travels: all weights, BatchNorm statistics included; these are averaged and no proximal term pulls at them. Stays:
nothing; the optimizer's slots start fresh every round, and Dropout draws as in FedAvg. Optimizers other than plain SGD
minimize the same objective, if the model was exported with `gradient_offset=True`.
Hyper-parameters: `mu`, 0.001..1, default 1, which the paper found best on three of its five data sets; 0 is FedAvg. `stragglers`, 0..1, default 0: the probability that a device
of a round is a straggler, which the seed, the device and the round decide; the paper has 0, 0.5 and 0.9 of the devices.
"""

from dataclasses import replace

from odt_sim.device.device import Device
from odt_sim.device.plan import TrainingPlan
from odt_sim.strategies.base import Strategy, Tensors, Update, receive
from odt_sim.strategies.settings import checked


class FedProx(Strategy):
    """FedAvg with a proximal term and with partial work."""

    needs = frozenset({"gradient_offset"})

    def __init__(self, mu: float = 1.0, stragglers: float = 0.0) -> None:
        """Sets the pull of the global weights and how many devices are slow.

        Args:
            mu: The factor of the proximal term.
            stragglers: The probability that a device does partial work in a round.
        """
        self.mu = checked("mu", mu, 0)
        self.stragglers = checked("stragglers", stragglers, 0, 1)

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Minimizes `loss + mu/2 |w - w0|^2` for as long as the device can."""
        start = receive(device, broadcast).select(device.model.trainable_layout)
        device.set_gradient_offset(-self.mu * start, self.mu)
        device.plan = self._plan(device)
        return super().local(device, broadcast)

    def _plan(self, device: Device) -> TrainingPlan:
        """Returns for how many epochs or steps a device trains in its round."""
        random, plan = device.random("stragglers"), device.plan
        slow, planned = random.random() < self.stragglers, plan.epochs if plan.steps is None else plan.steps
        done = int(random.integers(1, planned)) if slow and planned > 1 else planned
        return replace(plan, epochs=done) if plan.steps is None else replace(plan, steps=done)
