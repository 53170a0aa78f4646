"""FedAvg: federated averaging.

Paper: McMahan et al. 2017, Communication-Efficient Learning of Deep Networks from Decentralized Data.
Rule: `w <- sum_i n_i w_i / sum_i n_i`, where `w_i` is `w` after the local epochs on the `n_i` examples of device `i`.
Travels: all weights, BatchNorm statistics included.
Stays: nothing; optimizer slots start fresh every round. Dropout draws new masks in every step, from a seed derived from
the device and the round.
Deviations: none.
Unseen devices get the global weights.
Hyper-parameters: none of its own; `train.epochs`, `train.learning_rate`.
"""

from odt_sim.strategies.base import Strategy


class FedAvg(Strategy):
    """Federated averaging weighted by examples: the defaults of `Strategy`."""
