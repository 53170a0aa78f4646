"""FedPHP: a device's private model, the moving average of its trained models, teaches the next one.

Paper: Li et al. 2021, FedPHP: Federated Personalization with Inherited Private Models, section 4.
Rule: FedAvg, with `strength T^2 KL(q_p || q)` added to the local loss, where q and q_p are the softmax at temperature T
of the logits of the trained model and of the device's private model p; then `p <- m p + (1 - m) w_i` with the trained
w_i and `m = momentum min(z / participations, 1)` in the device's round z = 0, 1, ... A device's user gets p.
Travels: all weights, BatchNorm statistics included, as in FedAvg.
Stays: p, with its statistics, which are averaged as weights are, and z. Optimizer slots start fresh every round, and Dropout
draws as in FedAvg.
Deviations: the paper weights both losses as `1 - l` and `l`, which is `strength = l / (1 - l)` at another learning
rate; its other transfer, by the maximum mean discrepancy of embeddings, is omitted. In its first round, a device has no
p and trains without the term; the paper's p starts as the exported model. p runs without Dropout and with its
statistics.
Unseen devices train p from the global weights for `unseen_epochs` before deployment.
Hyper-parameters: `strength`, 0 or above, default 0.1; `temperature`, above 0, default 1; `momentum`, 0 to below 1, default
0.9; `participations`, 1 or more, default 10: the device's rounds until m reaches `momentum`; in the paper, all rounds
of a run; `unseen_epochs`, 0..50, default 10.
"""

from typing import Any

import numpy as np

from odt_sim.device.device import Device
from odt_sim.hyperparameters import count, number
from odt_sim.model.tensors import array_of
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import Strategy, Tensors, Update, weights_of
from odt_sim.strategies.classes import log_probabilities_of
from odt_sim.strategies.state import recall
from odt_sim.strategies.two_models.personal import keep_whole

OWN, ROUNDS = "own", "rounds"


class FedPHP(Strategy):
    """FedAvg with a private model on each device, used as teacher and deployed to the user.

    Attributes:
        strength: Factor of the distillation from the private model, at least 0.
        temperature: Temperature of both softmaxes, above 0.
        momentum: Largest weight of the private model in its average with the trained one, at least 0, below 1.
        participations: Rounds of a device until that weight is reached, at least 1.
        unseen_epochs: Epochs for which a device that never trained, unseen or seen, trains a private model before
            deployment.
    """

    needs = frozenset({"distillation"})
    reads_examples = True
    strength: float = number(0.1, search="tag(log,interval(0.01,3))")
    temperature: float = number(1.0, above=True, search="interval(1,4)")
    momentum: float = number(0.9, 0, 1, below=True, search="interval(0.5,0.95)")
    participations: int = count(10, 1, search="int(interval(3,40))")
    unseen_epochs: int = count(10)

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Train with the private model as teacher, and average the result into it."""
        shared = weights_of(broadcast)
        inputs = self._taught(device) if OWN in device.state else {}
        device.restore(shared)
        losses = device.train(inputs=inputs)
        trained = device.weights
        self._inherit(device, trained)
        return Update({"weights": trained.select(shared.layout) - shared}, len(device.train_examples), losses)

    def _taught(self, device: Device) -> dict[str, Any]:
        """Return the inputs of training with the private model's predictions."""
        recall(device)
        answers = log_probabilities_of(device).astype(np.float32)
        return {
            "distillation": self.strength,
            "distillation_temperature": self.temperature,
            "teacher_logits": answers,
        }

    def _inherit(self, device: Device, trained: Weights) -> None:
        """Average the trained weights into the private model, which starts as the first trained weights."""
        rounds = int(array_of(device.state.get(ROUNDS, np.zeros(1)))[0])
        if rounds:
            own = weights_of(device.state, OWN)
            weight = self.momentum * min(rounds / self.participations, 1.0)
            trained = trained.replace(weight * own + (1 - weight) * trained.select(own.layout))
        keep_whole(device, trained)
        device.state[ROUNDS] = np.array([rounds + 1])

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Return the device's private model."""
        device.restore(weights_of(broadcast))
        recall(device)
        if OWN not in device.state:
            device.train(self.unseen_epochs)
        return device.weights
