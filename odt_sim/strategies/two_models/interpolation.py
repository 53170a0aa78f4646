"""Interpolation: a mixture of the global model and a personal one.

Paper: Mansour et al. 2020, Three Approaches for Personalization with Applications to Federated Learning, section 5.
Rule: FedAvg on w; in addition, v trains only on the device. A device's user gets `share v + (1 - share) w`, with the
share in 0, 0.1, ..., 1 that has the smallest loss on the device's validation examples (ties: the smallest share).
Travels: w, BatchNorm statistics included, as in FedAvg.
Stays: v with its own statistics and optimizer slots; statistics are mixed as weights are. v starts as the first w that
the device receives and trains with the same Dropout masks.
Deviations: the paper mixes outputs and trains v for each share; here weights are mixed, so that the user gets one model
and v trains once.
Unseen devices train v before deployment.
Hyper-parameters: `unseen_epochs`, 0..50, default 10. A device without validation examples keeps the global weights.
"""

from odt_sim.device.device import Device
from odt_sim.hyperparameters import count
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import Strategy, Tensors, Update, weights_of
from odt_sim.strategies.state import receive
from odt_sim.strategies.two_models.personal import keep_own_model, own_model, train_own_model

SHARES = tuple(i / 10 for i in range(11))


class Interpolation(Strategy):
    """FedAvg that deploys a mixture of the global and a personal model.

    Attributes:
        unseen_epochs: Epochs for which a device that never trained, unseen or seen, trains a personal model before
            deployment.
    """

    without_validation = "users get the global model"
    unseen_epochs: int = count(10)

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Train the global model, then the personal one."""
        update = super().local(device, broadcast)
        train_own_model(device, weights_of(broadcast))
        keep_own_model(device)
        return update

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Return the mixture with the best validation loss."""
        shared = receive(device, broadcast)
        chosen, best = 0.0, shared
        if len(device.validation_examples):
            own = own_model(device, weights_of(broadcast), 0.0, self.unseen_epochs)
            mixtures = {share: share * own + (1 - share) * shared for share in SHARES if share}
            mixtures[0.0] = shared  # 0 times a diverged model would be NaN
            chosen = min(SHARES, key=lambda share: _validation_loss(device, mixtures[share]))
            best = mixtures[chosen]
        device.records["own_share"] = chosen
        return best


def _validation_loss(device: Device, weights: Weights) -> float:
    device.restore(weights)
    return device.loss("validation")
