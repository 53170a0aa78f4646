"""Which state each device has after a round: in which file, of which round.

Only devices that have a state are listed, in segments. A round adds one segment, into which those before it are merged that
are not at least twice as large: so there are few, their sizes halve at least, and what a round writes and copies is about
what its own devices wrote, times the logarithm of the fleet at most.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Version(NamedTuple):
    """A file of states.

    Attributes:
        round: The round in which it was written.
        file: The id of the first device in it.
    """

    round: int
    file: int


@dataclass(frozen=True, eq=False)
class Segment:
    """Some devices' versions.

    Attributes:
        round: The round that added it.
        entries: `[devices, 3]` int64, ascending by device: the device's id, and its version's round and file.
    """

    round: int
    entries: NDArray[np.int64]

    def of(self, devices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the entries of those of the devices that are listed."""
        listed = self.entries[:, 0]
        places = np.minimum(np.searchsorted(listed, devices), len(listed) - 1)
        entries: NDArray[np.int64] = self.entries[places[listed[places] == devices]]
        return entries


@dataclass(frozen=True)
class Versions:
    """The versions of all devices that have a state.

    Attributes:
        segments: In the order of their rounds; of a device the last one counts that lists it. None is empty.
    """

    segments: tuple[Segment, ...] = ()

    def of(self, devices: Sequence[int]) -> dict[int, Version]:
        """Returns the versions of those of the devices that have a state, by id."""
        found: dict[int, Version] = {}
        if not self.segments:
            return found
        wanted = np.asarray(devices, np.int64)
        for segment in self.segments:
            found.update((id, Version(round, file)) for id, round, file in segment.of(wanted).tolist())
        return found

    def after(self, round: int, files: Mapping[int, int]) -> "Versions":
        """Returns the versions after a round.

        Args:
            round: The round, later than all before.
            files: For each device that wrote a state the file that holds it.
        """
        if not files:
            return self
        entries = np.array([(device, round, file) for device, file in files.items()], np.int64)
        kept = list(self.segments)
        merged = [entries]
        size = len(entries)
        while kept and len(kept[-1].entries) < 2 * size:
            merged.append(kept.pop().entries)
            size += len(merged[-1])
        return Versions((*kept, Segment(round, _newest(merged))))

    def written(self, round: int) -> dict[int, Version]:
        """Returns the versions that a round added, the last one, by the ids of the devices."""
        if not self.segments or self.segments[-1].round != round:
            return {}
        entries = self.segments[-1].entries
        return {id: Version(*version) for id, *version in entries[entries[:, 1] == round].tolist()}

    def files(self) -> dict[Version, int]:
        """Returns for each file that is referred to how many devices have their state in it."""
        if not self.segments:
            return {}
        entries = _newest([segment.entries for segment in reversed(self.segments)])
        files, counts = np.unique(entries[:, 1:], axis=0, return_counts=True)
        return {Version(*file): count for file, count in zip(files.tolist(), counts.tolist(), strict=True)}


def _newest(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Returns each device's first entry, ascending by device, of parts that begin with the newest."""
    entries = np.concatenate(parts)
    _, first = np.unique(entries[:, 0], return_index=True)
    return entries[first]
