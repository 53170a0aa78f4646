"""Reptile: a point from which a few local steps lead far.

Nichol et al. 2018, On First-Order Meta-Learning Algorithms; Jiang et al. 2019, Improving Federated Learning Personalization
via Model Agnostic Meta Learning, for its reading as FedAvg with a server's step size.
Rule: `w <- w + step_size * sum_i n_i (w_i - w) / sum_i n_i`, `w_i` being `w` after the local epochs; a device's user gets `w`
after fine-tuning. The paper weighs all tasks equally; here devices weigh by examples, so that a step of 1 is FedAvg.
Travels: all weights, BatchNorm statistics included. Stays: nothing; the optimizer's slots start fresh every round
and for fine-tuning, and Dropout draws as in FedAvg.
Unseen devices fine-tune as all do.
Hyper-parameters: `step_size`, above 0 to 2, default 1; `max_epochs`, 0..50, default 5: the most epochs of fine-tuning, of
which each device takes those that validate best (the paper fixes the number of steps).
"""

from odt_sim.hyperparameters import checked
from odt_sim.strategies.base import ServerState, Updates, weights_of
from odt_sim.strategies.fedavg_finetune import FedAvgFineTune


class Reptile(FedAvgFineTune):
    """FedAvg whose server goes a part of the way, and whose users get the model fine-tuned."""

    def __init__(self, step_size: float = 1.0, max_epochs: int = 5) -> None:
        """Sets the server's step and the longest fine-tuning.

        Args:
            step_size: The part of the mean update that the server takes.
            max_epochs: The most epochs that a device may choose to fine-tune.
        """
        super().__init__(max_epochs, layers="all")
        self.step_size = checked("step_size", step_size, 0, 2, above=True)

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Takes a step along the mean update."""
        after = state.weights + self.step_size * weights_of(updates.mean)
        return ServerState({**state.broadcast, "weights": after}, state.private)
