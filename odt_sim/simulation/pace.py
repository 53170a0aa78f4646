"""How fast rounds go: the seconds of whole rounds by where devices run."""

from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median
from typing import Literal, NamedTuple

Place = Literal["this process", "processes", "ray"]

FEWEST_ROUNDS, FEWEST_SECONDS = 16, 0.1
"""What must have been measured of a place before it is compared. The first rounds of a frozen body compute embeddings, so
that the median of a few would be theirs."""

FEWEST_LONG, LONG_SECONDS = 2, 0.5
"""What is enough of longer rounds."""

FEWEST_SLOWER, SLOWER = 4, 1.1
"""What is enough of a place whose every round takes so many times the median of another place."""


class _Period(NamedTuple):
    """The begin of a round, which ends with that of the next one."""

    place: Place
    since: float
    cost: float
    first: bool  # the first in its place builds interpreters and is no measurement
    evaluates: bool = False


@dataclass
class _Measured:
    """Rounds of one kind in one place, up to as many as a comparison needs.

    Attributes:
        seconds: Those of all rounds.
        cost: That of all rounds.
        paces: The seconds of each round for its cost.
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
        """Return whether the few rounds so far leave no doubt that they are slower than others."""
        few = len(self.paces) >= FEWEST_SLOWER and self.cost > 0
        return few and min(self.paces) > SLOWER * median(other.paces)

    def add(self, seconds: float, cost: float) -> None:
        self.seconds, self.cost = self.seconds + seconds, self.cost + cost
        self.paces.append(seconds / cost if cost else 0.0)


@dataclass
class Paces:
    """The measured rounds by place, apart for rounds in which devices were evaluated.

    Medians are compared: a round may wait for a disk, for embeddings or for another program.

    Attributes:
        total: The seconds of all rounds that were measured, forgotten ones too.
    """

    total: float = 0.0
    _measured: dict[tuple[Place, bool], _Measured] = field(default_factory=lambda: defaultdict(_Measured))
    _seen: set[Place] = field(default_factory=set)
    _period: _Period | None = None

    def begin(self, place: Place, now: float, cost: float) -> None:
        """Begin a round of some cost, in any unit, now."""
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

    def forget(self) -> None:
        """Begin to measure anew."""
        self._measured.clear()
        self._seen.clear()

    def known(self, place: Place) -> bool:
        """Return whether enough was measured of a place."""
        return any(self._measured[place, evaluates].enough for evaluates in (False, True))

    def seconds(self, place: Place) -> float:
        """Return the seconds of a round of average cost in a place of which enough was measured."""
        parts = (self._measured[place, evaluates] for evaluates in (False, True))
        return self._of_round(next(part for part in parts if part.enough))

    def compared(self, one: Place, other: Place) -> tuple[float, float] | None:
        """Return the seconds of a round of average cost in two places.

        None until both have enough rounds of one kind, or the other one a few that are all slower.
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
