"""FedNTD: distillation that preserves the global model's predictions for the classes other than the label.

Paper: Lee et al. 2022, Preservation of the Global Knowledge by Not-True Distillation in Federated Learning, section 4.
Rule: FedAvg, with `beta T^2 KL(q_g || q)` added to the local loss, where q and q_g are the softmax at temperature T of
the logits of the trained and the received model, over all classes except the label.
Travels: all weights, BatchNorm statistics included, as in FedAvg.
Stays: nothing; optimizer slots start fresh every round, and Dropout draws as in FedAvg.
Deviations: none; the received model runs without Dropout and with its BatchNorm statistics.
Unseen devices get the global weights.
Hyper-parameters: `beta`, 0 or above, default 1; `temperature`, above 0, default 1.
"""

from odt_sim.data.store.columns import only
from odt_sim.device.device import Device
from odt_sim.hyperparameters import number
from odt_sim.strategies.base import Strategy, Tensors, Update, weights_of
from odt_sim.strategies.state import receive


class FedNTD(Strategy):
    """FedAvg with distillation from the received model over all classes except the label.

    Attributes:
        beta: Factor of the distillation, at least 0; 0 is FedAvg.
        temperature: Temperature of both softmaxes, above 0.
    """

    needs = frozenset({"not_true_distillation"})
    reads_examples = True
    beta: float = number(1.0, search="tag(log,interval(0.1,10))")
    temperature: float = number(1.0, above=True, search="interval(0.5,4)")

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Train with the received model as teacher."""
        shared = weights_of(broadcast)
        receive(device, broadcast)
        teacher = only(device.outputs("train"), "infer", "choose another strategy")
        inputs = {
            "not_true_distillation": self.beta,
            "not_true_temperature": self.temperature,
            "not_true_logits": teacher,
        }
        losses = device.train(inputs=inputs)
        return Update({"weights": device.change_since(shared)}, len(device.train_examples), losses)
