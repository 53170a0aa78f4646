"""The weighted mean: all devices are trusted.

McMahan et al. 2017, Communication-Efficient Learning of Deep Networks from Decentralized Data.
Rule: `sum_i n_i u_i / sum_i n_i` of updates `u_i` with weights `n_i`, added up block by block in float64. A single
device that sends what it likes moves it as far as it likes.
Hyper-parameters: none.
"""

from odt_sim.aggregators.base import Aggregator


class Mean(Aggregator):
    """The weighted mean: what the contract's defaults do."""
