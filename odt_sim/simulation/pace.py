"""The pace of rounds: seconds per round, by the place where devices run."""

from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median
from typing import Literal, NamedTuple

Place = Literal["this process", "processes", "ray"]

FEWEST_ROUNDS, FEWEST_SECONDS = 16, 0.1
"""The rounds and seconds that must be measured in a place before it is compared.

The first rounds of a frozen body compute embeddings, which would dominate the median of a few rounds.
"""

FEWEST_LONG, LONG_SECONDS = 2, 0.5
"""The number of rounds and the seconds that are enough if rounds are long."""

FEWEST_SLOWER, SLOWER = 4, 1.1
"""The number of rounds that are enough if each takes more than `SLOWER` times the median of another place."""


class _Period(NamedTuple):
    """The start of a round, which ends when the next round starts."""

    place: Place
    since: float
    cost: float
    first: bool  # the first round in a place builds interpreters, so it is not measured
    evaluates: bool = False


@dataclass
class _Measured:
    """Rounds of one kind in one place, at most as many as a comparison needs.

    Attributes:
        seconds: The total seconds.
        cost: The total cost.
        paces: The seconds per unit of cost of each round.
    """

    seconds: float = 0.0
    cost: float = 0.0
    paces: list[float] = field(default_factory=list)

    @property
    def enough(self) -> bool:
        rounds = len(self.paces)
        long = rounds >= FEWEST_LONG and self.seconds >= LONG_SECONDS
        return (long or (rounds >= FEWEST_ROUNDS and self.seconds >= FEWEST_SECONDS)) and self.cost > 0

    def clearly_slower(self, other: "_Measured") -> bool:
        """Return whether the rounds so far, though few, are clearly slower than those of another place."""
        few = len(self.paces) >= FEWEST_SLOWER and self.cost > 0
        return few and min(self.paces) > SLOWER * median(other.paces)

    def add(self, seconds: float, cost: float) -> None:
        self.seconds, self.cost = self.seconds + seconds, self.cost + cost
        self.paces.append(seconds / cost if cost else 0.0)


@dataclass
class Paces:
    """The measured rounds by place, separately for rounds with and without evaluation.

    Medians are compared, because a round may wait for a disk, for embeddings or for another program.

    Attributes:
        total: The seconds of all measured rounds, including forgotten ones.
    """

    total: float = 0.0
    _measured: dict[tuple[Place, bool], _Measured] = field(default_factory=lambda: defaultdict(_Measured))
    _seen: set[Place] = field(default_factory=set)
    _period: _Period | None = None

    def begin(self, place: Place, now: float, cost: float) -> None:
        """Begin a round of a cost, in any unit, at the time `now`."""
        self._period = _Period(place, now, cost, place not in self._seen)
        self._seen.add(place)

    def evaluates(self) -> None:
        """Record that devices are evaluated in the round in progress."""
        if self._period:
            self._period = self._period._replace(evaluates=True)

    def end(self, now: float) -> None:
        """End the round in progress, if any."""
        if self._period and not self._period.first:
            place, since, cost, _, evaluates = self._period
            measured, self.total = self._measured[place, evaluates], self.total + now - since
            if not measured.enough:
                measured.add(now - since, cost)
        self._period = None

    def forget(self, *places: Place) -> None:
        """Discard the rounds that were measured in some places, to measure again."""
        for place in places:
            self._measured[place, False] = self._measured[place, True] = _Measured()
            self._seen.discard(place)

    def known(self, place: Place) -> bool:
        """Return whether enough rounds were measured in a place."""
        return any(self._measured[place, evaluates].enough for evaluates in (False, True))

    def seconds(self, place: Place) -> float:
        """Return the seconds of a round of average cost in a place where enough rounds were measured."""
        parts = (self._measured[place, evaluates] for evaluates in (False, True))
        return self._of_round(next(part for part in parts if part.enough))

    def compared(self, one: Place, other: Place) -> tuple[float, float] | None:
        """Return the seconds of a round of average cost in two places.

        Returns None until both places have enough rounds of one kind, or `other` has a few that are all clearly slower.
        """
        for evaluates in (False, True):
            first, second = self._measured[one, evaluates], self._measured[other, evaluates]
            if first.enough and (second.enough or second.clearly_slower(first)):
                return self._of_round(first), self._of_round(second)
        return None

    def _of_round(self, part: _Measured) -> float:
        return median(part.paces) * self._cost()

    def _cost(self) -> float:
        """Return the average cost of a round."""
        parts = self._measured.values()
        return sum(part.cost for part in parts) / sum(len(part.paces) for part in parts)
