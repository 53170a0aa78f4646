"""Weighted mean, which trusts all devices.

Paper: McMahan et al. 2017, Communication-Efficient Learning of Deep Networks from Decentralized Data.
Rule: `sum_i n_i u_i / sum_i n_i` of updates `u_i` with weights `n_i`, summed block by block in float64. A single
hostile device can move it arbitrarily far.
Hyper-parameters: none.
"""

from odt_sim.aggregators.base import Aggregator


class Mean(Aggregator):
    """Weighted mean: the defaults of `Aggregator`."""
