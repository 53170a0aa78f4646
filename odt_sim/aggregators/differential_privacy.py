"""User-level differential privacy: clipped updates, a fixed denominator, Gaussian noise, and an accountant.

Paper: McMahan et al. 2018, Learning Differentially Private Recurrent Language Models (DP-FedAvg), algorithm 1 with the
fixed-denominator estimator and flat clipping.
Rule: `(sum_i u_i min(1, max_norm / |u_i|)) / cohort + N(0, (noise_multiplier max_norm / cohort)^2)` for every number of
every tensor, where `|u_i|` is the norm over all tensors together and `cohort` the number of devices at the start of the
round. All devices have equal weights; stragglers and excluded devices count as updates of zeros.
Privacy: two fleets are neighbours if they differ by the replacement of one user, with all examples and states. This
changes the sum by up to `2 max_norm`, so the noise is `noise_multiplier / 2` times the sensitivity. A cohort of fixed
size is drawn uniformly without replacement; `dp-accounting` composes this by Renyi divergences (Wang, Balle and
Kasiviswanathan 2019, Subsampled Renyi Differential Privacy and Analytical Moments Accountant, theorem 27; plain
Gaussian if all devices take part). Epsilon holds for everything that the server sends in all rounds, against anyone who
does not have the seed.
`docs/aggregation.md` lists what is not covered. Needs `pip install 'odt_sim[privacy]'`.
Hyper-parameters: `max_norm`, above 0, default 1, best near the median norm of updates; `noise_multiplier`, 0 or more,
default 1 (z in the paper); `delta`, above 0 and below 1, default 1e-5, at most one over the number of users.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from odt_sim._support.system import package
from odt_sim.aggregators.base import with_numbers
from odt_sim.aggregators.norm_clipping import NormClipping
from odt_sim.hyperparameters import number
from odt_sim.model.tensors import array_of
from odt_sim.strategies.base import Updates


class DifferentialPrivacy(NormClipping):
    """The noisy mean of clipped updates with equal weights.

    Attributes:
        noise_multiplier: Standard deviation of the noise in the sum of updates, in units of `max_norm`, at least 0.
        delta: Probability with which epsilon may fail to hold, above 0, below 1; at most one over the number of users.
    """

    unweighted = True
    same_tensors = True  # noise hides a tensor's numbers, but not the fact that a device sent it
    noise_multiplier: float = number(1.0)
    delta: float = number(1e-5, 0, 1, above=True, below=True)

    def __post_init__(self) -> None:
        """Check that the accountant can be imported.

        Raises:
            ConfigurationError: `dp-accounting` is missing.
        """
        dp_accounting_module()

    def combine(self, updates: Updates, cohort: int, random: np.random.Generator) -> Updates:
        """Divide the sum by the cohort's size and add noise; the number of contributors is not returned."""
        deviation = self.noise_multiplier * self.max_norm / cohort
        mean = {}
        for name, tensor in sorted(updates.mean.items()):
            numbers = array_of(tensor).astype(np.float64) * (updates.count / cohort)
            mean[name] = with_numbers(tensor, numbers + deviation * random.standard_normal(numbers.shape))
        return replace(updates, mean=mean, weight=float(cohort), count=cohort)

    def privacy(self, rounds: int, cohort: int, participants: int) -> Mapping[str, Any]:
        """Return `epsilon` (infinite without noise), `delta`, and `neighbours`, how two neighbouring fleets differ."""
        found = epsilon(self.noise_multiplier, self.delta, rounds, cohort, participants)
        return {"epsilon": found, "delta": self.delta, "neighbours": "one user replaced"}


def dp_accounting_module() -> Any:
    """Import `dp_accounting`; it loads slowly, so it is only imported when needed.

    Raises:
        ConfigurationError: The package is missing or cannot be imported.
    """
    needed = "aggregator=differential_privacy: cannot import dp_accounting"
    package("dp_accounting.rdp", needed, "privacy")
    return package("dp_accounting", needed, "privacy")


def epsilon(noise_multiplier: float, delta: float, rounds: int, cohort: int, participants: int) -> float:
    """Return epsilon for repeated noisy sums over cohorts drawn without replacement, if one user is replaced.

    Args:
        noise_multiplier: Standard deviation of the noise divided by the clipping norm.
        delta: Probability with which epsilon may fail to hold.
        rounds: Number of rounds.
        cohort: Number of users in a round.
        participants: Number of users from which cohorts are drawn.
    """
    if noise_multiplier == 0:
        return math.inf
    library = dp_accounting_module()
    noisy = library.GaussianDpEvent(noise_multiplier / 2)  # replacing a user moves the sum by up to twice the norm
    sampled = library.SampledWithoutReplacementDpEvent(participants, cohort, noisy)

    def spent(event: object) -> float:
        accountant = library.rdp.RdpAccountant(neighboring_relation=library.NeighboringRelation.REPLACE_ONE)
        return float(accountant.compose(event, rounds).get_epsilon(delta))

    # Both bounds hold; the bound with sampling is loose for large cohorts.
    return min(spent(sampled), spent(noisy))
