"""How fast a run goes: what is left of it, what actors would save of that, and the seconds of rounds here and there."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

ROUND_ON_ACTORS = 0.005
"""Seconds that messages to and from actors add to a round; measured, see benchmarks/README.md."""

FEWEST_ROUNDS, FEWEST_SECONDS = 2, 2.0
"""What must have been measured of a backend before it is compared."""


def saved(seconds: float, costs: Sequence[float], cores: int) -> float:
    """Return the seconds that actors would save of a round; negative if they would be slower.

    Args:
        seconds: What the round takes in one process.
        costs: The cost of each of its blocks, in any unit.
        cores: The cores of this machine.
    """
    total = sum(costs)
    if not total:
        return -ROUND_ON_ACTORS
    longest = max(total / cores, *costs)  # no actor can share a block with another
    return seconds * (1 - longest / total) - ROUND_ON_ACTORS


@dataclass
class Progress:
    """The work that this process has done and has left, in any unit of cost.

    Attributes:
        rounds: The most rounds of the run.
        cost: The cost of the calls that were done here.
        trained: The number of rounds that were trained here.
        last: The last of them.
    """

    rounds: int
    cost: float = 0.0
    trained: int = 0
    last: int = 0
    _warm: tuple[float, float] | None = None

    def begin(self, now: float, cost: float) -> None:
        """Record the end of the first block, after which time is measured: that block also builds interpreters."""
        self._warm = self._warm or (now, cost)

    def end(self, round: int) -> None:
        """Record the end of a round's training, which on the clock may take several calls."""
        self.trained += round != self.last
        self.last = round

    def rate(self, now: float, done: float) -> float:
        """Return the seconds that work of cost 1 takes; 0 before anything was measured.

        Args:
            now: The time.
            done: The cost that is done of the call in progress.
        """
        since, first = self._warm or (now, 0.0)
        measured = self.cost + done - first
        return (now - since) / measured if measured > 0 else 0.0

    def left(self, done: float, whole: float, kind: Literal["train", "evaluate", "final"]) -> float:
        """Return the cost of the work that is left, with evaluations as often as until now.

        Args:
            done: The cost that is done of the call in progress.
            whole: The cost of that call.
            kind: Its kind.
        """
        if kind == "final":
            return whole - done
        trains = kind == "train"
        rounds = self.trained + (done / whole if trains and whole else 0.0)
        each = (self.cost + done) / rounds if rounds else 0.0
        return whole - done + each * (self.rounds - self.last - trains)


@dataclass
class Paces:
    """The seconds of whole rounds in this process and on actors, apart for rounds in which devices were evaluated.

    Attributes:
        measured: Seconds, cost and number of rounds, by whether they ran on actors and whether devices were evaluated.
        rate: The seconds of cost 1 in this process, for a run that left it before a whole round was measured.
    """

    measured: dict[tuple[bool, bool], tuple[float, float, int]] = field(default_factory=dict)
    rate: float = 0.0

    def add(self, seconds: float, cost: float, *, actors: bool, evaluates: bool) -> None:
        """Record a round."""
        before = self.measured.get((actors, evaluates), (0.0, 0.0, 0))
        self.measured[actors, evaluates] = before[0] + seconds, before[1] + cost, before[2] + 1

    def compared(self) -> tuple[float, float] | None:
        """Return the seconds of a round in this process and on actors; None until both are known."""
        for evaluates in (False, True):
            there = self._of_round(True, evaluates)
            here = self._of_round(False, evaluates) or self.rate * self._cost()
            if there and here:
                return here, there
        return None

    def _of_round(self, actors: bool, evaluates: bool) -> float | None:
        """Return the seconds of a round of average cost; None until enough were measured."""
        seconds, cost, rounds = self.measured.get((actors, evaluates), (0.0, 0.0, 0))
        enough = rounds >= FEWEST_ROUNDS and seconds >= FEWEST_SECONDS and cost
        return seconds / cost * self._cost() if enough else None

    def _cost(self) -> float:
        """Return the average cost of a round."""
        rounds = sum(rounds for *_, rounds in self.measured.values())
        return sum(cost for _, cost, _ in self.measured.values()) / rounds if rounds else 0.0
