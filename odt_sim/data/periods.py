"""The periods in which a fleet's examples arrive."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from odt_sim.data.dataset import Array, Indices, read_only

Kept = Literal["new", "all"]


@dataclass(frozen=True, eq=False)
class Arrival:
    """The period in which each example arrives.

    Attributes:
        period: `[examples]` int16, from 0; -1 for examples that no device has.
        periods: The number of periods.
        rounds: The rounds of each period; the last one goes on.
        keep: `new` if a device trains on the examples of the period only, `all` if it keeps those that came before.
    """

    period: Array
    periods: int
    rounds: int
    keep: Kept

    def __post_init__(self) -> None:
        """Make the array read-only."""
        object.__setattr__(self, "period", read_only(self.period))

    def at(self, round: int) -> int:
        """Return the period of a round; that of round 0, before the first one, is 0."""
        return min(max(round - 1, 0) // self.rounds, self.periods - 1)

    def train(self, indices: Indices, round: int) -> Indices:
        """Return those of a device's examples that it trains on in a round."""
        now, arrived = self.at(round), self.period[indices]
        return np.asarray(indices[arrived == now if self.keep == "new" else arrived <= now])

    def test(self, indices: Indices, round: int) -> Indices:
        """Return those of a device's test examples that have arrived by a round."""
        return np.asarray(indices[self.period[indices] <= self.at(round)])

    def of_period(self, indices: Indices, period: int) -> Indices:
        """Return those of a device's examples that arrive in a period."""
        return np.asarray(indices[self.period[indices] == period])
