"""Index lists of all devices in two arrays, so that large fleets need no Python object per device."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import SupportsIndex, overload

import numpy as np

from odt_sim.data.dataset import Indices
from odt_sim.errors import DataError


@dataclass(frozen=True, eq=False)
class IndexLists(Sequence[Indices]):
    """Sequence of int64 arrays, one per device, in compressed-row form.

    Attributes:
        values: `[used examples]` int64, device by device.
        ends: `[devices + 1]` int64, the start of each device's list in `values`, and the end of the last.
    """

    values: Indices
    ends: Indices

    @classmethod
    def of(cls, parts: Sequence[Indices]) -> "IndexLists":
        """Return index lists of the given parts; index lists are returned unchanged.

        Raises:
            DataError: A part is not a list of integers.
        """
        if isinstance(parts, IndexLists):
            return parts
        arrays = [np.asarray(part) for part in parts]
        for device, array in enumerate(arrays):
            if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
                raise DataError(
                    f"the partition: assigned device {device} {array.dtype} {list(array.shape)}, "
                    "expected a list of example indices"
                )
        ends = np.cumsum([0, *(len(array) for array in arrays)], dtype=np.int64)
        return cls(
            np.concatenate([np.zeros(0, np.int64), *(array.astype(np.int64, copy=False) for array in arrays)]), ends
        )

    @classmethod
    def grouped(cls, owner: Indices, devices: int) -> "IndexLists":
        """Return the ascending example indices of each device.

        Args:
            owner: `[examples]` the device of each example; -1 for none.
            devices: The number of devices.
        """
        order = np.argsort(owner, kind="stable")
        ends = np.searchsorted(owner[order], np.arange(devices + 1))
        return cls(order[ends[0] :], ends - ends[0])

    @property
    def sizes(self) -> Indices:
        """`[devices]`: the number of each device's examples."""
        return np.diff(self.ends)

    def __len__(self) -> int:
        """Return the number of devices."""
        return len(self.ends) - 1

    @overload
    def __getitem__(self, device: SupportsIndex) -> Indices: ...

    @overload
    def __getitem__(self, device: slice) -> "list[Indices]": ...

    def __getitem__(self, device: SupportsIndex | slice) -> Indices | list[Indices]:
        """Return a view of a device's list; a list of views for a slice."""
        numbers = range(len(self))[device]
        if isinstance(numbers, range):
            return [self[number] for number in numbers]
        return self.values[self.ends[numbers] : self.ends[numbers + 1]]
