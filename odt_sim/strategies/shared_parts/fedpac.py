"""FedPAC: features aligned by class centroids, and a combination of all heads for each device.

Paper: Xu, Tong and Huang 2023, Personalized Federated Learning with Feature Alignment and Classifier Collaboration,
algorithm 1.
Rule: the device trains its head for `head_epochs` with the received body frozen, then the body for `train.epochs` with the
head frozen and `strength / d |h - c_y|^2` added to the loss of an example with embedding h of d features and label y.
Bodies are averaged; centroids c are mean embeddings after training, weighted by examples. Device i gets the head
`sum_j a_j head_j` over the round's devices, with a >= 0 and sum a = 1 that minimize
`sum_j a_j^2 V_j + |H_i - sum_j a_j H_j|^2`. With the received body, row c of H is the mean embedding of class c times
the share of the class, and `V = (mean |h|^2 - |H|^2) / n` for n examples.
Travels: body and norm, BatchNorm statistics included, the head and the centroids, both ways; also H, V and the number
of examples of each class, up.
Stays: nothing; the server stores each device's head. Optimizer slots start fresh every round, and Dropout draws as in
FedAvg.
Deviations: both parts train with the same learning rate; in the paper, the head trains with a larger one. If no device
of a round has a class, the class keeps its earlier centroid; a class without a centroid adds nothing to the loss. A
device gets the head that was combined after the last round in which it took part.
Unseen devices train the exported head under the shared body for `unseen_epochs` before deployment.
Hyper-parameters: `strength`, 0 or above, default 1 (lambda); `head_epochs`, 1..50, default 1; `unseen_epochs`, 0..50,
default 10.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.device import Device
from odt_sim.hyperparameters import count, number
from odt_sim.model.contract.manifest import Parameter
from odt_sim.model.tensors import array_of
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import ServerState, Strategy, Tensors, Update, Updates, weights_of
from odt_sim.strategies.classes import class_counts, means_by_class
from odt_sim.strategies.losses.fedproto import COUNTS, PROTOTYPES, mean_prototypes, own_prototypes, prototype_inputs
from odt_sim.strategies.two_models.personal import body_group

HEAD, MEANS, VARIANCE = "head", "means", "variance"


class FedPAC(Strategy):
    """A shared body with aligned features, under a mixture of the devices' heads.

    Attributes:
        strength: Factor of the mean squared distance from a class's centroid, at least 0.
        head_epochs: Epochs of the head in every round, at least 1.
        unseen_epochs: Epochs of the head on a device that never trained, unseen or seen, before deployment.
    """

    needs = frozenset({"prototypes", "embed", "body", "head", "train_head"})
    keeps_updates = True
    not_averaged = frozenset({HEAD, MEANS, VARIANCE})
    asynchronous = False
    reads_examples = True
    unweighted = frozenset({PROTOTYPES, COUNTS})
    strength: float = number(1.0, search="tag(log,interval(0.01,10))")
    head_epochs: int = count(1, 1, search="int(interval(1,10))")
    unseen_epochs: int = count(10)

    def needed(self, model: TrainableModel) -> frozenset[str]:
        """Return the required capabilities, with training of the body and its normalization layers alone."""
        return super().needed(model) | {f"train_{body_group(model)}"}

    def shared(self, parameter: Parameter) -> bool:
        """Return whether the parameter is averaged, as all except the head are."""
        return parameter.group != "head"

    def message(self, state: ServerState, device: int) -> Tensors:
        """Return the body, the centroids and, if the device has taken part before, its combined head."""
        head = state.private.get(str(device))
        return state.broadcast if head is None else {**state.broadcast, HEAD: head}

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Compute H and V, train the head, then the body, and send the results."""
        shared = _receive(device, broadcast)
        described = _described(device)
        inputs = {}
        if PROTOTYPES in broadcast:
            features = array_of(broadcast[PROTOTYPES]).shape[1]
            inputs = prototype_inputs(broadcast, self.strength / features)
        losses = [
            device.train(self.head_epochs, group="head"),
            device.train(group=body_group(device.model), inputs=inputs),
        ]
        trained = device.weights
        head = trained.select(trained.layout.select(lambda p: p.moves and not self.shared(p)))
        tensors = {"weights": trained.select(shared.layout) - shared, HEAD: head, **described, **own_prototypes(device)}
        return Update(tensors, len(device.train_examples), np.concatenate(losses))

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Average bodies and centroids, and combine the heads for each device that contributed."""
        sent = [(str(id), updates.each[id].tensors) for id in sorted(updates.each)]
        means = np.array([array_of(tensors[MEANS]).ravel() for _, tensors in sent], np.float64)
        variances = np.array([array_of(tensors[VARIANCE])[0] for _, tensors in sent], np.float64)
        heads = [weights_of(tensors, HEAD) for _, tensors in sent]
        combined = {
            id: _mixture(heads, smallest_on_simplex(quadratic_form(means, variances, i)))
            for i, (id, _) in enumerate(sent)
        }
        body = super().aggregate(state, updates).weights
        centroids = mean_prototypes(state.broadcast, updates.mean)
        return ServerState({"weights": body, **centroids}, {**state.private, **combined})

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Return the body with the device's head; train the exported head first if the device has none."""
        _receive(device, broadcast)
        if HEAD not in broadcast:
            device.train(self.unseen_epochs, group="head")
        return device.weights


def quadratic_form(means: NDArray[np.float64], variances: NDArray[np.float64], device: int) -> NDArray[np.float64]:
    """Return Q with `a^T Q a = sum_j a_j^2 V_j + |H_i - sum_j a_j H_j|^2` where `sum a = 1`, `[devices, devices]`.

    Args:
        means: H of each device, `[devices, classes * features]`.
        variances: V of each device, `[devices]`.
        device: i, the index of the device.
    """
    apart = means - means[device]
    return np.asarray(np.diag(variances) + apart @ apart.T)


def _receive(device: Device, broadcast: Tensors) -> Weights:
    """Restore the received parts, and return the body."""
    shared = weights_of(broadcast)
    device.restore(shared)
    if HEAD in broadcast:
        device.restore(weights_of(broadcast, HEAD))
    return shared


def _described(device: Device) -> Tensors:
    """Return H and V of the device's features."""
    embeddings = np.asarray(device.embedded("train").x, np.float64)
    examples = len(embeddings)
    means = means_by_class(device, embeddings) * class_counts(device)[:, np.newaxis] / examples
    variance = max(((embeddings**2).sum() / examples - (means**2).sum()) / examples, 0)
    return {MEANS: means.astype(np.float32), VARIANCE: np.array([variance], np.float32)}


def _mixture(heads: Sequence[Weights], shares: NDArray[np.float64]) -> Weights:
    mixed = np.zeros(heads[0].layout.size)
    for share, head in zip(shares, heads, strict=True):
        mixed += share * head.vector
    return Weights(heads[0].layout, mixed.astype(np.float32))


Array = NDArray[np.float64]

TOLERANCE = 1e-12
"""The search ends if no weight improves the form by more than this, relative to its largest coefficient."""


def smallest_on_simplex(form: Array) -> Array:
    """Return the weights a that minimize `a^T Q a` with `a >= 0` and `sum a = 1`, `[n]`.

    The method of Wolfe (1976, Finding the nearest point in a polytope) reaches the exact minimum, up to rounding, in
    finitely many steps. Starting from one positive weight, it adds the weight that improves the form most, minimizes
    under the constraint that the sum is 1, and drops weights that would become negative.

    Args:
        form: Q, `[n, n]`, symmetric and positive semidefinite.
    """
    weights = np.zeros(len(form))
    weights[form.diagonal().argmin()] = 1.0
    slack = TOLERANCE * np.abs(form).max()
    for _ in range(3 * len(form)):  # ends earlier, except for rounding
        gains = weights @ form @ weights - form @ weights
        gains[weights > 0] = 0
        if gains.max() <= slack:
            break
        weights = _without_negative(form, weights, [*np.flatnonzero(weights), gains.argmax()])
    return weights


def _without_negative(form: Array, weights: Array, support: list[np.intp]) -> Array:
    """Return the minimum over the weights of a support, which shrinks until no weight is negative."""
    while True:
        target = np.zeros(len(form))
        target[support] = _on_plane(form[np.ix_(support, support)])
        if target.min() >= 0:
            return target
        falling = [i for i in support if target[i] < 0]
        steps = weights[falling] / (weights[falling] - target[falling])
        first = falling[steps.argmin()]
        weights = weights + steps.min() * (target - weights)
        support = [i for i in support if i != first and weights[i] > 0]
        weights[first] = 0


def _on_plane(form: Array) -> Array:
    """Return the weights, of any sign and with the sum 1, that minimize a form."""
    size = len(form)
    system = np.ones((size + 1, size + 1))
    system[:size, :size], system[size, size] = form, 0
    return np.asarray(np.linalg.lstsq(system, np.eye(size + 1)[size], rcond=None)[0][:size])
