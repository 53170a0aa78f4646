"""APFL: adaptive personalized federated learning, a mixture of two models with a learned weight.

Paper: Deng et al. 2020, Adaptive Personalized Federated Learning, algorithm 1; section 4 for the mixing weight.
Rule: on each batch, with `m = a v + (1 - a) w`, all three are updated from their values before the batch:
`w <- w - lr g(w)`, `v <- v - lr a g(m)`, `a <- clip(a - lr <v - w, g(m)>, 0, 1)`; w is averaged. A device's user gets
m, computed with the averaged w.
Travels: w, BatchNorm statistics included.
Stays: v, a, and the statistics of m, which are updated by the device's own batches only. v starts as the first w that
the device receives.
Deviations: devices are weighted by examples, so that w equals FedAvg's w for any a; the paper weights them equally
(`weighting=uniform`).
Optimizer: plain SGD only, without slots; Dropout draws new masks for each of the two gradients.
Unseen devices train v and a before deployment.
Hyper-parameters: `alpha`, 0..1, default 0.5: the initial a; `unseen_epochs`, 0..50, default 10.
"""

from typing import NamedTuple

import numpy as np

from odt_sim.device.batches import Batch
from odt_sim.device.device import Device
from odt_sim.device.plan import TrainingPlan
from odt_sim.hyperparameters import count, number
from odt_sim.model.tensors import array_of
from odt_sim.model.weights import Layout, Weights
from odt_sim.strategies.base import Strategy, Tensors, Update, weights_of
from odt_sim.strategies.state import recall
from odt_sim.strategies.two_models.personal import keep_whole


class Mixture(NamedTuple):
    """The two models of a device.

    Attributes:
        w: All weights of the global model.
        v: All weights of the personal model.
        alpha: Weight of v, 0..1.
    """

    w: Weights
    v: Weights
    alpha: float

    def trained(self, layout: Layout) -> tuple[Weights, Weights, Weights]:
        """Return the trainable parameters of w, v and their mixture, which is read-only."""
        w, v = self.w.select(layout), self.v.select(layout)
        mixed = self.alpha * v
        np.add(mixed.vector, ((1 - self.alpha) * w).vector, out=mixed.vector)
        return w, v, _fixed(mixed)


class APFL(Strategy):
    """FedAvg, with a personal model on each device that is trained and deployed as part of a mixture.

    Attributes:
        alpha: Initial weight of the personal model, 0 to 1.
        unseen_epochs: Epochs for which a device that never trained, unseen or seen, trains a personal model before
            deployment.
    """

    needs = frozenset({"plain_sgd", "learning_rate"})
    alpha: float = number(0.5, 0, 1, search="interval(0.1,0.9)")
    unseen_epochs: int = count(10)

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Train both models and the mixing weight."""
        shared = weights_of(broadcast)
        mixture, losses = _train(device, self._mixture(device, shared), device.plan)
        keep_whole(device, mixture.v)
        device.state["alpha"] = np.array([mixture.alpha])
        delta = mixture.w.select(shared.layout) - shared
        return Update({"weights": delta}, len(device.train_examples), np.array(losses, np.float32))

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Return the mixture of the personal model with the averaged one."""
        mixture = self._mixture(device, weights_of(broadcast))
        if "own" not in device.state:
            trained, _ = _train(device, mixture, TrainingPlan(self.unseen_epochs))
            mixture = trained._replace(w=mixture.w)
        device.records["alpha"] = mixture.alpha
        *_, mixed = mixture.trained(device.model.trainable_layout)
        return mixture.v.replace(mixed)  # with the statistics of v

    def _mixture(self, device: Device, shared: Weights) -> Mixture:
        """Return the global model and the stored personal one, or the global model twice if none is stored."""
        device.restore(shared)
        w = device.weights
        recall(device)
        kept = device.state.get("alpha")
        return Mixture(w, device.weights, self.alpha if kept is None else float(array_of(kept)[0]))


def _train(device: Device, mixture: Mixture, plan: TrainingPlan) -> tuple[Mixture, list[float]]:
    """Return the models after the steps of a plan, and the losses of the global model."""
    losses = []
    for batch in device.batches(plan):
        mixture, loss = _step(device, mixture, batch)
        losses.append(loss)
    return mixture, losses


def _step(device: Device, mixture: Mixture, batch: Batch) -> tuple[Mixture, float]:
    layout = device.model.trainable_layout
    w, v, mixed = mixture.trained(layout)
    device.restore(mixture.w)
    loss = device.train_step(batch)
    w_after = device.weights
    device.restore(_fixed(mixture.v.replace(mixed)))
    device.train_step(batch)
    after = device.weights
    descent = mixed - after.select(layout)  # learning rate times gradient
    alpha_after = mixture.alpha - float(np.vdot((v - w).vector, descent.vector))
    trained = mixture.alpha * descent
    np.subtract(v.vector, trained.vector, out=trained.vector)
    v_after = _fixed(after.replace(_fixed(trained)))
    return Mixture(w_after, v_after, min(max(alpha_after, 0.0), 1.0)), loss


def _fixed(weights: Weights) -> Weights:
    """Make new weights read-only, so that a device uses them without a copy, and return them."""
    weights.vector.flags.writeable = False
    return weights
