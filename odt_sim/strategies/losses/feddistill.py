"""FedDistill: devices share mean predictions per class instead of weights.

Paper: Jeong et al. 2018, Communication-Efficient On-Device Machine Learning: Federated Distillation and Augmentation under
Non-IID Private Data, algorithm 1 (federated distillation, FD).
Rule: each device trains its own model with `gamma H(p_y, q)` added to the loss of an example with label y, where H is the
cross-entropy, q the softmax of the model's logits, and p_y the mean prediction of the other devices for class y. It
then sends its own mean q for each of its classes. The server averages them over the other devices, with equal weights.
Travels: mean probabilities for each class, up and down.
Stays: the model, with its BatchNorm statistics. Optimizer slots start fresh every round, and Dropout draws as in FedAvg.
Deviations: predictions are made by the model after its training, without Dropout; the paper averages them over the
steps. Every device's last predictions count, even if it is outside the round's cohort; in the paper, all devices take
part in each round. Examples of classes that no other device has train without the term. Reported losses of steps
contain `KL(p_y || q)`, which differs from H by a constant. The paper's augmentation by a generative model (FAug) is
left out.
Unseen devices train a model from the exported weights with the mean predictions of all devices for `unseen_epochs`
before deployment.
Hyper-parameters: `gamma`, 0 or above, default 1; `unseen_epochs`, 0..50, default 10.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.device import Device
from odt_sim.hyperparameters import count, number
from odt_sim.model.tensors import array_of
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import AVERAGING, ServerState, Strategy, Tensors, Update, Updates
from odt_sim.strategies.classes import labels_of, log_probabilities_of, means_by_class
from odt_sim.strategies.state import recall
from odt_sim.strategies.two_models.personal import keep_whole

ANSWERS = "answers"
"""`[classes, classes]` float32: mean probabilities by class; rows of classes without examples are zeros."""


class FedDistill(Strategy):
    """Personal models that learn from the mean predictions of the other devices.

    Attributes:
        gamma: Factor of the distillation, at least 0.
        unseen_epochs: Epochs for which a device that never trained, unseen or seen, trains a model before deployment.
    """

    needs = frozenset({"distillation"})
    keeps_updates = True
    not_averaged = frozenset({ANSWERS})
    asynchronous = False
    reads_examples = True
    unused = AVERAGING
    gamma: float = number(1.0, search="tag(log,interval(0.01,10))")
    unseen_epochs: int = count(10)

    def init(self, initial: Weights) -> ServerState:
        """Return an empty state, since no device has trained yet."""
        return ServerState({})

    def message(self, state: ServerState, device: int) -> Tensors:
        """Return the mean predictions of the other devices; nothing in the first round."""
        if not state.broadcast:
            return {}
        own = array_of(state.private.get(str(device), np.zeros(1)))
        total, counts = (array_of(state.broadcast[name]) for name in ("total", "devices"))
        others = counts - own.any(axis=-1)
        mean = np.where(others > 0, (total - own).T / np.maximum(others, 1), 0).T
        return {ANSWERS: np.maximum(mean, 0).astype(np.float32)}

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Train the device's model on the others' predictions, and send its own."""
        recall(device)
        losses = device.train(inputs=self._inputs(device, broadcast))
        keep_whole(device, device.weights)
        means = means_by_class(device, np.exp(log_probabilities_of(device)))
        return Update({ANSWERS: means.astype(np.float32)}, len(device.train_examples), losses)

    def _inputs(self, device: Device, broadcast: Tensors) -> dict[str, Any]:
        if ANSWERS not in broadcast:
            return {}
        answers = array_of(broadcast[ANSWERS])[labels_of(device)]
        return {
            "distillation": self.gamma,
            "distillation_weight": answers.any(axis=-1).astype(np.float32),
            "teacher_logits": np.log(np.maximum(answers, np.finfo(np.float32).tiny)),
        }

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Replace the predictions of the devices that contributed, and sum those of all devices."""
        sent = {str(id): array_of(update.tensors[ANSWERS]) for id, update in updates.each.items()}
        known: dict[str, NDArray[Any]] = {**{id: array_of(kept) for id, kept in state.private.items()}, **sent}
        each = [known[id] for id in sorted(known, key=int)]  # the sum does not depend on the order of arrival
        total = np.asarray(np.sum(each, axis=0, dtype=np.float64))
        devices = np.sum([answers.any(axis=-1) for answers in each], axis=0)
        return ServerState({"total": total, "devices": np.asarray(devices)}, known)

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Return the device's own model."""
        recall(device)
        if "own" not in device.state:
            device.train(self.unseen_epochs, inputs=self._inputs(device, broadcast))
        return device.weights
