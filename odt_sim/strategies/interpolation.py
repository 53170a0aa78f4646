"""A mixture of the global model and one that the device trains alone.

Mansour et al. 2020, Three Approaches for Personalization with Applications to Federated Learning, section 5.
Rule: FedAvg on w; beside it v trains on the device alone; a device's user gets `share v + (1 - share) w`, with the share in
0, 0.1, ..., 1 of the smallest loss on the device's own validation examples (the smallest share among equals). The paper mixes
the models' answers and trains v for each share; here weights are mixed, so that the user gets one model, and v trains once.
Travels: w, BatchNorm statistics included, as in FedAvg. Stays: v with statistics and optimizer's slots of its own; the
statistics are mixed as the weights are. v begins with the first w that its device receives, and
trains under the same Dropout masks.
Unseen devices train such a v before they are deployed to.
Hyper-parameters: `unseen_epochs`, 0..50, default 10; a device without validation examples keeps the global weights.
"""

from odt_sim.device.device import Device
from odt_sim.hyperparameters import checked_count
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import Strategy, Tensors, Update, weights_of
from odt_sim.strategies.own_model import keep_own_model, own_model, train_own_model

SHARES = tuple(i / 10 for i in range(11))


class Interpolation(Strategy):
    """FedAvg, whose users get a mixture with a model of their own."""

    def __init__(self, unseen_epochs: int = 10) -> None:
        """Sets how a device begins that took no part in training.

        Args:
            unseen_epochs: The epochs for which such a device trains a model of its own before it is deployed to.
        """
        self.unseen_epochs = checked_count("unseen_epochs", unseen_epochs)

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Trains the global model, then the device's own."""
        update = super().local(device, broadcast)
        train_own_model(device, weights_of(broadcast))
        keep_own_model(device)
        return update

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Returns the mixture that validates best."""
        shared = super().deploy(device, broadcast)
        chosen, best = 0.0, shared
        if len(device.validation_examples):
            own = own_model(device, weights_of(broadcast), 0.0, self.unseen_epochs)
            mixtures = {share: share * own + (1 - share) * shared for share in SHARES if share}
            mixtures[0.0] = shared  # 0 times an own model that diverged would be NaN
            chosen = min(SHARES, key=lambda share: _validation_loss(device, mixtures[share]))
            best = mixtures[chosen]
        device.records["own_share"] = chosen
        return best


def _validation_loss(device: Device, weights: Weights) -> float:
    device.restore(weights)
    return device.loss("validation")
