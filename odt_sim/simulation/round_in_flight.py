"""A round that the backend has begun, and what it turns out to lack."""

from collections.abc import Iterator
from dataclasses import dataclass

from odt_sim.simulation.exclusion import advice, told
from odt_sim.simulation.job import Trained


@dataclass(frozen=True)
class Begun:
    """A round that the backend has begun.

    Attributes:
        invited: The ids of those of its cohort that are not quarantined.
        quarantined: How many of its cohort are.
        slow: How many of the invited are too slow to do all their work in time.
        dropped: How many of these the round goes on without.
        parts: What its blocks did, as it comes.
    """

    invited: list[int]
    quarantined: int
    slow: int
    dropped: int
    parts: Iterator[Trained]

    def missing(self, trained: Trained) -> str:
        """Returns who of the cohort did not contribute, why, and what to do."""
        excluded = trained.excluded
        found = {
            f"left out {len(excluded)} ({told(excluded)})": excluded,
            f"{self.dropped} were stragglers (fleet.stragglers)": self.dropped,
            f"{self.quarantined} are quarantined (fleet.quarantine_after)": self.quarantined,
        }
        missing = ", ".join(text for text, holds in found.items() if holds)
        return f"{missing}; {advice(excluded) or 'ask for fewer, or mend what they fail of'}"
