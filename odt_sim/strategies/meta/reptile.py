"""Reptile: an initialization for fast adaptation in a few local steps.

Paper: Nichol et al. 2018, On First-Order Meta-Learning Algorithms; Jiang et al. 2019, Improving Federated Learning
Personalization via Model Agnostic Meta Learning, for its form as FedAvg with a server step size.
Rule: `w <- w + server_learning_rate * sum_i n_i (w_i - w) / sum_i n_i`, where `w_i` is `w` after the local epochs. A
device's user gets `w` after fine-tuning.
Travels: all weights, BatchNorm statistics included.
Stays: nothing; optimizer slots start fresh every round and for fine-tuning, and Dropout draws as in FedAvg.
Deviations: devices are weighted by examples, so that a server learning rate of 1 is FedAvg; the paper weights tasks equally
(`weighting=uniform`) and fixes the number of fine-tuning steps.
Unseen devices fine-tune like all others.
Hyper-parameters: `server_learning_rate`, above 0 to 2, default 0.5, the mean of the paper's rate, which falls from 1 to
0; `max_epochs`, 0..50, default 5: the maximum number of fine-tuning epochs, from which each device chooses by
validation loss.
"""

from odt_sim.hyperparameters import number
from odt_sim.strategies.averaging.fedavg_finetune import FedAvgFineTune


class Reptile(FedAvgFineTune):
    """FedAvg with a shorter step on the server, and fine-tuning at deployment."""

    unused = frozenset({"layers"})
    server_learning_rate: float = number(0.5, above=True, search="interval(0.1,2)", kw_only=True)
