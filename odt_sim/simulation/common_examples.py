"""Test examples of the whole fleet, on which a device's model shows what it has forgotten."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.federated import FederatedData

MOST = 256
"""The examples that are drawn at most: their cost is the same for every device, in a fleet of any size."""


@dataclass(frozen=True, eq=False)
class CommonExamples:
    """Test examples that were drawn from all devices' at once, so that devices are measured on nearly the same ones.

    Attributes:
        rows: `[drawn]` int64, in the data's arrays.
        owners: `[drawn]` int64, the device that each is of.
    """

    rows: NDArray[np.int64]
    owners: NDArray[np.int64]

    @classmethod
    def drawn(cls, data: FederatedData, seed: int) -> "CommonExamples":
        """Draws at most 256 of all test examples, each with the same chance; the run's seed decides which."""
        sizes = data.offsets[:, 3] - data.offsets[:, 2]
        ends = np.cumsum(sizes)
        generator = np.random.default_rng([seed, *b"others"])
        chosen = np.sort(generator.choice(ends[-1], min(MOST, ends[-1]), replace=False))
        owners = np.searchsorted(ends, chosen, side="right")
        places = chosen - (ends - sizes)[owners]
        rows = [data.test(owner)[place] for owner, place in zip(owners.tolist(), places.tolist(), strict=True)]
        return cls(np.array(rows, np.int64), owners)

    def of_others(self, device: int) -> NDArray[np.int64]:
        """Returns the rows that are not a device's own; none in a fleet of one."""
        return np.asarray(self.rows[self.owners != device])
