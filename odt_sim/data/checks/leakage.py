"""Leakage: validation and test examples that also occur in the parts that their device learns from."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.dataset import Array, Indices
from odt_sim.data.devices.federated import FederatedData
from odt_sim.data.store.columns import Columns, arrays_of, is_mapped

MOST = 4000
"""Maximum number of devices that are checked, so that the cost does not grow with the fleet."""

MOST_MAPPED = 256 << 20
"""Approximate number of bytes that are checked if the examples are in a store; more examples are sampled by device."""

_SHORTEST_RUN = 8  # steps; shorter runs may be equal by chance
_WORDS = np.random.default_rng(0).integers(0, 2**63, 4096, np.uint64) | np.uint64(1)
_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2^64

Codes = NDArray[np.uint64]


class LeakageWarning(UserWarning):
    """A device's parts share or overlap in examples."""


@dataclass(frozen=True)
class Leakage:
    """The validation and test examples that leak.

    Attributes:
        name: The data set's name.
        equal: Validation examples that equal a training example of their device, target included, and test examples that
            equal one of training or validation.
        overlapping: Other examples that share at least half a window with such an example, step for step.
        devices: The number of devices with such examples.
        evaluated: The number of validation and test examples that were checked.
        sampled: The number of devices that were checked; None for all.
    """

    name: str
    equal: int
    overlapping: int
    devices: int
    evaluated: int
    sampled: int | None = None

    @property
    def message(self) -> str | None:
        """A warning in one line; None without leakage."""
        if not self.devices:
            return None
        sample = f" of {self.sampled} sampled devices" if self.sampled else ""
        advice = (
            "; for windows of a recording, use split.method=block or a larger split.gap" if self.overlapping else ""
        )
        return (
            f"data {self.name}: of {self.evaluated} validation and test examples{sample}, {self.equal} are equal to "
            f"and {self.overlapping} overlap with training examples of their device (on {self.devices} devices){advice}"
        )


def check_leakage(data: FederatedData) -> Leakage:
    """Find leakage as `find_leakage` does, and issue a `LeakageWarning` if there is any."""
    leakage = find_leakage(data)
    if leakage.message:
        warnings.warn(leakage.message, LeakageWarning, stacklevel=2)
    return leakage


def find_leakage(data: FederatedData) -> Leakage:
    """Count the examples that occur or overlap in several parts of a device.

    Overlaps are found in recordings `[examples, steps, channels]` or `[examples, channels, steps]` (time is the longer
    axis) and in tokens `[examples, steps]`, of 16 steps or more, if they are the only input. Two windows overlap if the
    first half of one occurs in the other, unless it is nearly constant, like silence and padding. Steps are compared by
    64-bit hashes.

    Only a sample of the devices, drawn with a fixed seed, is checked if there are more than 4,000 devices, or more than
    256 MiB of examples in a store.
    """
    equal = overlapping = devices = evaluated = 0
    sample = _sample(data.devices, _most(data))
    for device in sample:
        train, validation, test = data.parts(device)
        in_validation = _shared(data, validation, train)
        in_test = _shared(data, test, np.concatenate([train, validation]))
        equal += in_validation[0] + in_test[0]
        overlapping += in_validation[1] + in_test[1]
        devices += bool(sum(in_validation) + sum(in_test))
        evaluated += len(validation) + len(test)
    sampled = len(sample) if len(sample) < data.devices else None
    return Leakage(data.name, equal, overlapping, devices, evaluated, sampled)


def _most(data: FederatedData) -> int:
    """Return the largest number of devices to check."""
    if not any(is_mapped(array) for array in arrays_of(data.x).values()):
        return MOST
    of_device = data.x.nbytes // len(data.x) * len(data.indices) // data.devices
    return min(MOST, max(MOST_MAPPED // max(of_device, 1), 1))


def _sample(devices: int, most: int) -> Sequence[int]:
    if devices <= most:
        return range(devices)
    drawn: list[int] = np.random.default_rng(0).choice(devices, most, replace=False).tolist()
    return sorted(drawn)


def _shared(data: FederatedData, part: Indices, known: Indices) -> tuple[int, int]:
    """Return the number of a part's examples that equal known examples, and of others that overlap with them."""
    arrays = [*arrays_of(data.x).values(), *arrays_of(data.y).values()]
    rows = {_row(arrays, i) for i in known.tolist()}
    equal = np.array([_row(arrays, i) in rows for i in part.tolist()], np.bool_)
    x = data.x
    if isinstance(x, Columns) or (length := _steps(x)) is None:
        return int(equal.sum()), 0
    mine, theirs = (_runs(_step_codes(x[index]), length // 2) for index in (part, known))
    starts_there = mine.moving & np.isin(mine.codes[:, 0], theirs.codes)
    holds_a_start = np.isin(mine.codes, theirs.codes[theirs.moving, 0]).any(axis=1)
    return int(equal.sum()), int(np.count_nonzero((starts_there | holds_a_start) & ~equal))


def _row(arrays: Sequence[Array], example: int) -> int:
    return hash(tuple(array[example].tobytes() for array in arrays))


def _steps(x: Array) -> int | None:
    """Return the number of time steps of a window; None if examples are not windows or are too short."""
    length = max(x.shape[1:]) if x.ndim == 3 else x.shape[1] if x.ndim == 2 and x.dtype.kind == "i" else 0
    return length if length >= 2 * _SHORTEST_RUN else None


def _step_codes(windows: Array) -> Codes:
    """Return a hash of all channels at each step, `[windows, steps]`."""
    if windows.ndim == 3 and windows.shape[2] > windows.shape[1]:
        windows = windows.swapaxes(1, 2)
    numbers = np.ascontiguousarray(windows).view(np.uint32).astype(np.uint64)
    numbers = numbers[..., np.newaxis] if numbers.ndim == 2 else numbers
    return np.asarray((numbers * np.resize(_WORDS, numbers.shape[-1])).sum(axis=-1, dtype=np.uint64))


@dataclass(frozen=True)
class _Runs:
    """Runs of a fixed number of steps in windows.

    Attributes:
        codes: `[windows, starts]` the hash of the run that begins at each start.
        moving: `[windows]` whether at least half of the first run's steps differ from the previous step.
    """

    codes: Codes
    moving: NDArray[np.bool_]


def _runs(steps: Codes, length: int) -> _Runs:
    """Return the runs of a length, hashed by the polynomial hash of Karp and Rabin (1987) modulo 2^64."""
    count = steps.shape[1]
    inverse = pow(_BASE, -1, 2**64)
    powers, inverses = (np.array([pow(b, t, 2**64) for t in range(count)], np.uint64) for b in (_BASE, inverse))
    sums = np.cumsum(np.pad(steps * powers, ((0, 0), (1, 0))), axis=1, dtype=np.uint64)
    codes = (sums[:, length:] - sums[:, : count + 1 - length]) * inverses[: count + 1 - length]
    changes = np.count_nonzero(steps[:, 1:length] != steps[:, : length - 1], axis=1)
    return _Runs(codes, changes >= length // 2)
