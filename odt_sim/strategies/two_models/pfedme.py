"""pFedMe: personalization with Moreau envelopes.

Paper: Dinh et al. 2020, Personalized Federated Learning with Moreau Envelopes, algorithm 1.
Rule: on the device's copy w_i of w, for each batch: `inner_steps` times `t <- t - lr (g(t) + regularization (t - w_i))`,
then `w_i <- w_i - outer_learning_rate regularization (w_i - t)`. The server computes
`w <- (1 - server_learning_rate) w + server_learning_rate mean w_i`, with equal weights. A device's user gets t. The paper's R
batches of a round are `train.steps`, or those of `train.epochs`; its personal learning rate is `train.learning_rate`. t
starts each round at w and continues from batch to batch.
Travels: w; BatchNorm statistics are those of t, and are averaged.
Stays: t; the next round does not start from it. Optimizers other than the paper's plain SGD start each round with fresh
slots. Dropout draws new masks for each step.
Deviations: in the paper, all devices solve for t in each round, even if their w_i is not averaged; its published
program weights the w_i by examples (`weighting=by_examples`) and adds 0.001 t to the gradients.
Unseen devices do the same for `unseen_epochs` before deployment.
Hyper-parameters: `regularization`, above 0 to 100, default 15 (lambda; the paper uses 15 to 30; t diverges if lambda
times `train.learning_rate` is 2 or more); `inner_steps`, 1..20, default 5 (K, as in the paper); `outer_learning_rate`,
above 0, default 0.05 (eta; times `regularization` at most 1; the paper uses 0.005 or 0.01 for R = 20 batches of 20;
with beta 1, values of 0.05, 0.01 and 0.005 reach 84.5, 61.1 and 49.3 % on the digits' validation examples, seeds 0 to
2, 40 rounds of `digits_mlp`); `server_learning_rate`, above 0 to 4, default 2 (beta; the paper uses 1 or 2, which reach
84.5 and 90.6 % in that experiment); `weighting`, default `uniform`; `unseen_epochs`, 0..50, default 10.
"""

import numpy as np

from odt_sim.device.device import Device
from odt_sim.device.plan import TrainingPlan
from odt_sim.errors import StrategyError
from odt_sim.hyperparameters import count, number
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import Strategy, Tensors, Update, weights_of
from odt_sim.strategies.state import recall
from odt_sim.strategies.two_models.personal import keep_whole


class PFedMe(Strategy):
    """Average of the points near which devices solve for their personal models.

    Attributes:
        regularization: Factor of the proximal term, above 0.
        inner_steps: Steps on one batch towards the personal model, at least 1.
        outer_learning_rate: Step size of the device's copy of the global model, above 0.
        unseen_epochs: Epochs for which a device that never trained, unseen or seen, trains a personal model before
            deployment.
    """

    needs = frozenset({"gradient_offset", "learning_rate"})
    server_learning_rate: float = number(2.0, above=True, search="interval(1,4)", kw_only=True)
    weighting = "uniform"
    regularization: float = number(15.0, above=True, search="tag(log,interval(1,50))")
    inner_steps: int = count(5, 1, search="int(interval(1,10))")
    outer_learning_rate: float = number(0.05, above=True, search="tag(log,interval(0.005,0.5))")
    unseen_epochs: int = count(10)

    def check(self, model: TrainableModel) -> None:
        """Check the model's capabilities, and that its optimizer does not average weights at the end of training.

        Raises:
            StrategyError: A capability is missing, or the optimizer averages the weights.
        """
        super().check(model)
        if model.finalizes:
            raise StrategyError(
                f"strategy pfedme: solves for its models step by step, but the optimizer of {model.name} averages "
                "weights at the end of training; export the model without use_ema or choose another strategy"
            )

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Solve for the personal model batch by batch, and move the copy of the global model towards it."""
        shared = weights_of(broadcast)
        copy, losses = self._solve(device, shared, device.plan)
        own = device.weights
        keep_whole(device, own)
        delta = own.replace(copy).select(shared.layout) - shared
        return Update({"weights": delta}, len(device.train_examples), np.array(losses, np.float32))

    def _solve(self, device: Device, shared: Weights, plan: TrainingPlan) -> tuple[Weights, list[float]]:
        """Return the copy's trainable parameters and the losses; the device then has the personal model's weights."""
        device.restore(shared)
        layout = device.model.trainable_layout
        copy, losses = shared.select(layout), []
        for batch in device.batches(plan):
            device.set_gradient_offset(-self.regularization * copy, self.regularization)
            losses += [device.train_step(batch) for _ in range(self.inner_steps)]
            apart = copy - device.weights.select(layout)
            copy -= self.outer_learning_rate * self.regularization * apart
        device.set_gradient_offset(None)
        return copy, losses

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Return the device's personal model."""
        recall(device)
        if "own" not in device.state:
            self._solve(device, weights_of(broadcast), TrainingPlan(self.unseen_epochs))
        return device.weights
