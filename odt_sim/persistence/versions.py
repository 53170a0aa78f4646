"""The file of each device's state after a round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Version(NamedTuple):
    """A file of states.

    Attributes:
        round: The round that wrote it.
        file: The id of the first device in it.
    """

    round: int
    file: int


@dataclass(frozen=True, eq=False)
class Versions:
    """The file of each device's state.

    Attributes:
        entries: `[devices, 3]` int32, ascending by device: the id of each device that has a state, and the round and
            the first device of its file.
    """

    entries: NDArray[np.int32] = field(default_factory=lambda: np.empty((0, 3), np.int32))

    def of(self, devices: Sequence[int]) -> dict[int, Version]:
        """Return the versions of the given devices that have a state, by id."""
        if not len(self.entries):
            return {}
        ids, wanted = self.entries[:, 0], np.asarray(devices, np.int32)
        places = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
        found = self.entries[places[ids[places] == wanted]].tolist()
        return {device: Version(round, first) for device, round, first in found}

    def after(self, round: int, files: Mapping[int, int]) -> "Versions":
        """Return the versions after a round.

        Args:
            round: The round, later than all earlier ones.
            files: For each device that wrote a state, the first device of its file.
        """
        if not files:
            return self
        written = np.array([(device, round, first) for device, first in files.items()], np.int32)
        entries = np.concatenate([written, self.entries])
        _, newest = np.unique(entries[:, 0], return_index=True)
        return Versions(entries[newest])

    def written(self, round: int) -> set[Version]:
        """Return the files that a round wrote."""
        if not len(self.entries):
            return set()
        return {Version(*version) for version in self.entries[self.entries[:, 1] == round, 1:].tolist()}

    @cached_property
    def files(self) -> NDArray[np.int64]:
        """The files of all states, each as the number `round << 32 | first device`, ascending."""
        return np.unique(self.entries[:, 1].astype(np.int64) << 32 | self.entries[:, 2])
