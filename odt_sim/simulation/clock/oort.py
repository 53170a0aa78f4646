"""Oort: devices with high utility and fast reports are selected more often.

Paper: Lai et al. 2021, Oort: Efficient Federated Learning via Guided Participant Selection (OSDI), algorithm 1.
Rule: a device that took part has the statistical utility `U = |B| sqrt(mean of squared losses)` and the duration `D`.
Its utility in round `R` is `U + sqrt(0.1 log R / L)`, with `L` its last round, times `(T / D)^2` if `D` exceeds the
preferred duration `T`. A fraction `1 - e` of the cohort exploits: devices are drawn by utility from those above 95% of
the utility at the cut-off. The rest explores devices that never took part, drawn by speed. `e` starts at 0.9 and is
multiplied by 0.98 in each round, down to 0.2. `T` starts at one step of the pacer, by default the duration within which
the faster 30% finish. Every 20 rounds, it rises by a step if the utility of these rounds is below that of the 20 rounds
before. `U` is clipped at the 95th percentile.
Deviations: losses are means over training batches, because a trainable file does not return losses of single examples.
`U` is divided by its largest value, since the temporal term would be negligible otherwise; the published implementation
does this, too. A device that did not report keeps its `U` and is not explored again; its `L` is the round. Devices are
not excluded after a number of rounds.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from odt_sim.fleet.classes import Floats, Ids

EXPLORATION, DECAY, LEAST_EXPLORATION = 0.9, 0.98, 0.2
CUT_OFF, CLIP = 0.95, 95.0
WINDOW = 20
PENALTY = 2.0


def statistical_utility(examples: int, losses: NDArray[np.float32]) -> float:
    """Return `|B| sqrt(mean of squared losses)`; 0 without losses."""
    return examples * math.sqrt(float(np.mean(np.square(losses.astype(np.float64))))) if len(losses) else 0.0


@dataclass(frozen=True, eq=False)
class Explored:
    """The knowledge of devices that took part; all arrays but `achieved` are `[explored]`, ascending by id.

    Attributes:
        ids: The devices.
        utility: The statistical utility of each device; 0 if none of its updates arrived.
        duration: The seconds of its last participation.
        last: The round of its last participation.
        achieved: `[rounds]`, the sum of the statistical utilities that were reported in each round.
    """

    ids: Ids = field(default_factory=lambda: np.empty(0, np.int64))
    utility: Floats = field(default_factory=lambda: np.empty(0))
    duration: Floats = field(default_factory=lambda: np.empty(0))
    last: Ids = field(default_factory=lambda: np.empty(0, np.int64))
    achieved: Floats = field(default_factory=lambda: np.empty(0))

    def after(self, round: int, ids: Ids, durations: Floats, utilities: Mapping[int, float]) -> "Explored":
        """Return the knowledge after a round.

        Args:
            round: The round's number.
            ids: `[selected]`, ascending, the devices that were selected.
            durations: `[selected]`, the seconds that each device needs for all of its work.
            utilities: The statistical utilities of the devices that reported, by id.
        """
        everyone = np.union1d(self.ids, ids)
        utility, duration, last = (np.zeros(len(everyone)) for _ in range(3))
        before, now = np.searchsorted(everyone, self.ids), np.searchsorted(everyone, ids)
        utility[before], duration[before], last[before] = self.utility, self.duration, self.last
        duration[now], last[now] = durations, round
        reported = np.array(sorted(utilities), np.int64)
        utility[np.searchsorted(everyone, reported)] = [utilities[device] for device in reported.tolist()]
        achieved = np.append(self.achieved, sum(utilities[device] for device in reported.tolist()))
        return replace(
            self, ids=everyone, utility=utility, duration=duration, last=last.astype(np.int64), achieved=achieved
        )


def preferred_duration(achieved: Floats, step: float) -> float:
    """Return `T` after the rounds so far: one step of the pacer, plus one for each window whose utility fell.

    Args:
        achieved: `[rounds]`, the utility of each round.
        step: The seconds of a step.
    """
    ends = range(2 * WINDOW, len(achieved) + 1, WINDOW)
    totals = [(achieved[end - 2 * WINDOW : end - WINDOW].sum(), achieved[end - WINDOW : end].sum()) for end in ends]
    return step * (1 + sum(bool(before > now) for before, now in totals))


def usual_duration(explored: Explored) -> float:
    """Return the seconds in which the faster 30% of the devices that took part finish; 1 if none took part yet."""
    return float(np.percentile(explored.duration, 30)) if len(explored.ids) else 1.0


def utilities(explored: Explored, round: int, preferred: float) -> Floats:
    """Return the utility of each device in a round that is about to begin, `[explored]`."""
    if not len(explored.ids):
        return np.empty(0)
    clipped = np.minimum(explored.utility, np.percentile(explored.utility, CLIP))
    utility = clipped / (clipped.max() or 1.0) + np.sqrt(0.1 * np.log(round) / explored.last)
    slow = explored.duration > preferred
    utility[slow] *= (preferred / explored.duration[slow]) ** PENALTY
    return np.asarray(utility)


def exploration(round: int) -> float:
    """Return the fraction of a round's cohort that explores."""
    return max(LEAST_EXPLORATION, EXPLORATION * DECAY ** (round - 1))


def select(
    eligible: Ids, speeds: Floats, count: int, round: int, explored: Explored, step: float, random: np.random.Generator
) -> Ids:
    """Return `[count]` ids, ascending, of the devices of a round.

    Args:
        eligible: The devices to choose from, ascending; at least `count`.
        speeds: `[eligible]`, above 0; devices are explored with probabilities proportional to them.
        count: The number of devices to select.
        round: The round's number.
        explored: The knowledge of devices that took part.
        step: The seconds of the pacer's step.
        random: The generator of the draws.
    """
    known = np.isin(eligible, explored.ids, assume_unique=True)
    exploit = min(count - int(count * exploration(round) + 0.5), int(known.sum()))  # halves are rounded up
    exploit = max(exploit, count - int((~known).sum()))
    chosen = _exploited(eligible[known], exploit, round, explored, step, random)
    fresh, weights = eligible[~known], speeds[~known]
    if count > exploit:
        new = random.choice(fresh, count - exploit, replace=False, p=weights / weights.sum())
        chosen = np.concatenate([chosen, new])
    return np.sort(chosen)


def _exploited(known: Ids, count: int, round: int, explored: Explored, step: float, random: np.random.Generator) -> Ids:
    """Return devices that took part before, drawn by utility from those above the cut-off."""
    if not count:
        return np.empty(0, np.int64)
    everyone = utilities(explored, round, preferred_duration(explored.achieved, step))
    utility = everyone[np.searchsorted(explored.ids, known)]
    cut_off = CUT_OFF * np.sort(utility)[::-1][count - 1]
    admitted = utility >= cut_off
    weights = np.maximum(utility[admitted], np.finfo(np.float64).tiny)
    return np.asarray(random.choice(known[admitted], count, replace=False, p=weights / weights.sum()))
