"""Periods in which a fleet's examples arrive."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from odt_sim.data.dataset import Array, Indices, read_only

Kept = Literal["new", "all"]


@dataclass(frozen=True, eq=False)
class Arrival:
    """Periods in which examples arrive, and the examples available in each round.

    Attributes:
        period: `[examples]` int16, the period of each example, from 0; -1 for examples that no device has.
        periods: The number of periods.
        rounds: The rounds of each period; the last period has no end.
        keep: `new` if a device trains only on the examples of the current period, `all` if it keeps earlier examples.
    """

    period: Array
    periods: int
    rounds: int
    keep: Kept

    def __post_init__(self) -> None:
        """Make the array read-only."""
        object.__setattr__(self, "period", read_only(self.period))

    def at(self, round: int) -> int:
        """Return the period of a round; round 0, before the first round, is in period 0."""
        return min(max(round - 1, 0) // self.rounds, self.periods - 1)

    def train(self, indices: Indices, round: int) -> Indices:
        """Return the given examples that a device trains on in a round."""
        now, arrived = self.at(round), self.period[indices]
        return np.asarray(indices[arrived == now if self.keep == "new" else arrived <= now])

    def test(self, indices: Indices, round: int) -> Indices:
        """Return the given test examples that have arrived by a round."""
        return np.asarray(indices[self.period[indices] <= self.at(round)])

    def of_period(self, indices: Indices, period: int) -> Indices:
        """Return the given examples that arrive in a period."""
        return np.asarray(indices[self.period[indices] == period])
