"""FedEM: each device's data are a mixture of the same few distributions, and each distribution has a model.

Paper: Marfoq et al. 2021, Federated Multi-Task Learning under a Mixture of Distributions, algorithm 1.
Rule: with the loss `l_sm` of the device's example s under model m, `q_sm = pi_m exp(-l_sm) / sum_k pi_k exp(-l_sk)` (E-step),
`pi_m <- mean_s q_sm`, and each model trains on the losses `q_sm l_sm` for the local epochs (M-step). The server averages each
model. A device's user gets the mean of the models' outputs, weighted by pi; for classifiers, the mean of probabilities.
Travels: all models down and up, BatchNorm statistics included.
Stays: pi. Optimizer slots start fresh for each model and round, and Dropout draws as in FedAvg.
Deviations: the paper starts from different random models. Here all start as exported, and each device draws its first
pi uniformly from the simplex, so that the first averages differ. Weights of examples are at least 1e-6, since tiny
float32 numbers slow down steps.
Unseen devices find pi by E-steps, which do not change the models.
Hyper-parameters: `components`, 1 or more, default 3 (M, as in the paper). A model's gradients are FedAvg's times q, so
`train.learning_rate` may be higher.
"""

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.device import Device
from odt_sim.device.predictor import Ensemble
from odt_sim.hyperparameters import count
from odt_sim.metrics.losses import log_softmax
from odt_sim.model.tensors import array_of
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import ServerState, Strategy, Tensors, Update, Updates, weights_of
from odt_sim.strategies.state import stepped

MIXTURE = "mixture"
"""pi in `device.state`, `[components]`."""
E_STEPS = 100
"""E-steps on a device without pi; the models are fixed, so the losses are computed once."""
LEAST_SHARE = 1e-6
"""The smallest share of an example in the training of a model."""

Shares = NDArray[np.float64]


class FedEM(Strategy):
    """FedAvg with several models; each device learns a mixture of them.

    Attributes:
        components: Number of models, at least 1.
    """

    needs = frozenset({"sample_weight"})
    asynchronous = False
    reads_examples = True
    components: int = count(3, 1, search="int(interval(2,5))")

    def init(self, initial: Weights) -> ServerState:
        """Return the exported weights as each model."""
        shared = super().init(initial).weights
        return ServerState({_name(i): shared for i in range(self.components)})

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Weight the examples for each model, train all, and send their changes."""
        models = _models(broadcast)
        if MIXTURE in device.state:
            mixture = array_of(device.state[MIXTURE])
        else:
            mixture = device.random(MIXTURE).dirichlet(np.ones(self.components))
        shares = responsibilities(mixture, _losses(device, models))
        changes, losses = {}, []
        for i, model in enumerate(models):
            device.begin_again()
            device.restore(model)
            # A diverged model's shares are NaN, which is not a valid weight; its NaN losses exclude the device.
            weights = np.nan_to_num(np.maximum(shares[:, i], LEAST_SHARE), nan=1.0)
            losses.append(device.train(inputs={"sample_weight": weights.astype(np.float32)}))
            changes[_name(i)] = device.change_since(model)
        device.state[MIXTURE] = shares.mean(axis=0)
        return Update(changes, len(device.train_examples), np.sum(losses, axis=0, dtype=np.float32))

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Add the mean change of each model."""
        rate = self.server_learning_rate
        return ServerState(
            {
                name: stepped(weights_of(state.broadcast, name), weights_of(updates.mean, name), rate)
                for name in state.broadcast
            }
        )

    def deploy(self, device: Device, broadcast: Tensors) -> Ensemble:
        """Return the models, mixed by the device's pi."""
        models = _models(broadcast)
        if MIXTURE in device.state:
            mixture = array_of(device.state[MIXTURE])
        else:
            mixture, losses = np.full(len(models), 1 / len(models)), _losses(device, models)
            for _ in range(E_STEPS):
                mixture = responsibilities(mixture, losses).mean(axis=0)
        device.records |= {f"pi_{i}": float(share) for i, share in enumerate(mixture)}
        return Ensemble(device, [device.initial.replace(model) for model in models], mixture)


def responsibilities(mixture: Shares, losses: Shares) -> Shares:
    """Return the probability that each example comes from each model's distribution, `[examples, components]`.

    Args:
        mixture: `[components]`, pi.
        losses: `[examples, components]`, the negative log-likelihoods.
    """
    with np.errstate(divide="ignore"):  # pi is 0 for a model that no example is assigned to
        return np.asarray(np.exp(log_softmax(np.log(mixture) - losses)))


def _losses(device: Device, models: list[Weights]) -> Shares:
    """Return the loss of each training example under each model, `[examples, components]`."""
    found = []
    for model in models:
        device.restore(model)
        found.append(device.example_losses("train"))
    return np.stack(found, axis=1)


def _models(broadcast: Tensors) -> list[Weights]:
    return [weights_of(broadcast, _name(i)) for i in range(len(broadcast))]


def _name(component: int) -> str:
    return f"weights.{component}"
