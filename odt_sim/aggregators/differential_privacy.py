"""User-level differential privacy: clipped updates, a fixed denominator, Gaussian noise, and an accountant.

McMahan et al. 2018, Learning Differentially Private Recurrent Language Models (DP-FedAvg), algorithm 1 with the
fixed-denominator estimator and flat clipping.
Rule: `(sum_i u_i min(1, max_norm / |u_i|)) / cohort + N(0, (noise_multiplier max_norm / cohort)^2)` on every number of
every tensor, `|u_i|` over all tensors together and `cohort` the devices that the round was begun with: all count alike,
and one that straggles or is left out counts as an update of zeros.
Privacy: two fleets are neighbours where one user is replaced by another, with all examples and states. Then the sum
moves by up to `2 max_norm`, so that the noise is `noise_multiplier / 2` times the sensitivity. A cohort is drawn
uniformly without replacement at a fixed size; `dp-accounting` composes this by Renyi divergences (Wang, Balle and
Kasiviswanathan 2019, Subsampled Renyi Differential Privacy and Analytical Moments Accountant, theorem 27; plain Gaussian
where all devices take part).
Epsilon holds for what the server sends out after all rounds, towards somebody who does not know the seed.
`docs/aggregation.md` says what is not covered. Needs `pip install 'odt_sim[privacy]'`.
Hyper-parameters: `max_norm`, above 0, default 1, best near the median norm of updates; `noise_multiplier`, 0 or more,
default 1 (z in the paper); `delta`, above 0 and below 1, default 1e-5, at most one over the number of users.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from odt_sim.aggregators.accountant import epsilon, required
from odt_sim.aggregators.base import with_numbers
from odt_sim.aggregators.norm_clipping import NormClipping
from odt_sim.hyperparameters import checked
from odt_sim.strategies.base import Updates, array_of


class DifferentialPrivacy(NormClipping):
    """The noisy mean of clipped updates, in which all users count alike."""

    unweighted = True

    def __init__(self, max_norm: float = 1.0, noise_multiplier: float = 1.0, delta: float = 1e-5) -> None:
        """Sets clipping and noise, and looks for the accountant.

        Args:
            max_norm: The longest that an update may be.
            noise_multiplier: The noise's standard deviation in the sum of updates, in units of `max_norm`.
            delta: The probability up to which epsilon may fail to hold.

        Raises:
            ConfigurationError: A number is out of its range, or `dp-accounting` is not installed.
        """
        super().__init__(max_norm)
        self.noise_multiplier = checked("noise_multiplier", noise_multiplier, 0, group="aggregator")
        self.delta = checked("delta", delta, 0, 1, above=True, below=True, group="aggregator")
        required()

    def combine(self, updates: Updates, cohort: int, random: np.random.Generator) -> Updates:
        """Divides the sum by the cohort's size and adds noise; who and how many contributed is not told further."""
        deviation = self.noise_multiplier * self.max_norm / cohort
        mean = {}
        for name, tensor in sorted(updates.mean.items()):
            numbers = array_of(tensor).astype(np.float64) * (updates.count / cohort)
            mean[name] = with_numbers(tensor, numbers + deviation * random.standard_normal(numbers.shape))
        return replace(updates, mean=mean, weight=float(cohort), count=cohort)

    def privacy(self, rounds: int, cohort: int, participants: int) -> Mapping[str, Any]:
        """Returns `epsilon` (infinite without noise), `delta`, and which fleets are `neighbours`."""
        found = epsilon(self.noise_multiplier, self.delta, rounds, cohort, participants)
        return {"epsilon": found, "delta": self.delta, "neighbours": "one user replaced"}
