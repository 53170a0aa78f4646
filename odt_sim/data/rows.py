"""The example indices of many devices in two arrays, compressed rows: a million devices are no million Python objects."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import SupportsIndex, overload

import numpy as np

from odt_sim.data.dataset import Indices


@dataclass(frozen=True, eq=False)
class Rows(Sequence[Indices]):
    """A sequence of int64 arrays, one for each device.

    Attributes:
        values: `[used examples]` int64, one device's after the other's.
        ends: `[devices + 1]` int64, where in `values` each device's begin, and where the last one's end.
    """

    values: Indices
    ends: Indices

    @classmethod
    def of(cls, parts: Sequence[Indices]) -> "Rows":
        """Returns parts as they are where they are in this form already, else copied into it."""
        if isinstance(parts, Rows):
            return parts
        ends = np.cumsum([0, *(len(part) for part in parts)], dtype=np.int64)
        return cls(np.concatenate([np.zeros(0, np.int64), *parts]), ends)

    @classmethod
    def grouped(cls, owner: Indices, devices: int) -> "Rows":
        """Turns the device of each example (-1: none) into the ascending example indices of each device."""
        order = np.argsort(owner, kind="stable")
        ends = np.searchsorted(owner[order], np.arange(devices + 1))
        return cls(order[ends[0] :], ends - ends[0])

    @property
    def sizes(self) -> Indices:
        """`[devices]`: how many examples each device has."""
        return np.diff(self.ends)

    def __len__(self) -> int:
        """Returns the number of devices."""
        return len(self.ends) - 1

    @overload
    def __getitem__(self, device: SupportsIndex) -> Indices: ...

    @overload
    def __getitem__(self, device: slice) -> "list[Indices]": ...

    def __getitem__(self, device: SupportsIndex | slice) -> Indices | list[Indices]:
        """Returns a view of a device's examples; for a slice a list of them."""
        numbers = range(len(self))[device]
        if isinstance(numbers, range):
            return [self[number] for number in numbers]
        return self.values[self.ends[numbers] : self.ends[numbers + 1]]
