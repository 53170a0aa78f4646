"""SCAFFOLD: control variates correct the drift of local steps.

Karimireddy et al. 2020, SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, algorithm 1, option II.
Rule: a local step is `y <- y - r (g - c_i + c)`, from `y = w`. After the device's `K` steps
`c_i+ = c_i - c + (w - y) / (K r)`. The server takes `w <- w + sum_i n_i (y_i - w) / sum_i n_i` and
`c <- c + 1/N sum_i (c_i+ - c_i)`, `N` being the number of devices that take part in the training at all. In the paper the
devices' weights count equally; here they do by examples, as in FedAvg, which is the same where devices have equally
many. The server's step size is 1, as in the paper's experiments.
Travels: all weights, and both ways `c`, as large as the trainable ones: twice the bytes. Stays: `c_i`, at first 0.
BatchNorm statistics are averaged as in FedAvg and have no control variate; Dropout draws as in FedAvg.
Only plain SGD, without slots: with another optimizer `(w - y) / (K r)` is not the mean gradient. Unseen devices get the
global weights.
Hyper-parameters: none of its own; `train.epochs`, `train.learning_rate`. A correction is a round old and the same for
all steps, so that some networks on skewed devices want a smaller step size than under FedAvg. The CNN on the digits diverges
with 0.1, by the rule and no mistake: a float64 version over the same gradients agrees to 1e-6 after 8 rounds. Set
`train.learning_rate=0.03`. The mean gradient at `w` as `c_i` (option I, a pass more) or devices that weigh alike did not
diverge in 20 rounds, and yet learned slower than FedAvg. A perceptron learns with 0.1 and 0.3 a little better than by FedAvg.
"""

from odt_sim.device.device import Device
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import ServerState, Strategy, Tensors, Update, Updates, trained_by_gradients, weights_of


class Scaffold(Strategy):
    """FedAvg whose local steps are corrected by the difference of the fleet's and the device's own gradient."""

    needs = frozenset({"gradient_offset", "learning_rate", "plain_sgd"})
    unweighted = frozenset({"control"})

    def init(self, initial: Weights) -> ServerState:
        """Begins with a control variate of zero."""
        state = super().init(initial)
        control = Weights.zeros(trained_by_gradients(state.weights.layout))
        return ServerState({**state.broadcast, "control": control}, state.private)

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Trains with corrected steps, and sends the change of the device's control variate along."""
        control = weights_of(broadcast, "control")
        own = weights_of({"control": Weights.zeros(control.layout), **device.state}, "control")
        device.set_gradient_offset(Weights.zeros(device.model.trainable_layout).replace(control - own))
        update = super().local(device, broadcast)
        change = Weights.zeros(control.layout)
        if steps := len(update.losses):
            moved = weights_of(update.tensors).select(control.layout)
            change = -control - moved / (steps * device.learning_rate())
        device.state["control"] = own + change
        return Update({**update.tensors, "control": change}, update.weight, update.losses)

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Averages the weights, and moves the control variate by the devices' changes over the number of all devices."""
        after = super().aggregate(state, updates)
        change = weights_of(updates.mean, "control") * (updates.count / updates.participants)
        control = weights_of(state.broadcast, "control") + change
        return ServerState({**after.broadcast, "control": control}, after.private)
