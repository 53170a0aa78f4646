"""Examples that a device's validation or test part shares with the parts it learns from."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.dataset import Array, Indices
from odt_sim.data.federated import FederatedData

MOST = 4000
"""The devices that are looked at, at most: the cost does not grow with the fleet."""

_SHORTEST_RUN = 8  # steps; fewer are alike by chance
_WORDS = np.random.default_rng(0).integers(0, 2**63, 4096, np.uint64) | np.uint64(1)
_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2^64

Codes = NDArray[np.uint64]


class LeakageWarning(UserWarning):
    """Examples are shared or overlap between a device's parts."""


@dataclass(frozen=True)
class Leakage:
    """How many examples of the fleet tell one part of their device about another.

    Attributes:
        name: What the data set is called.
        equal: Validation examples that are equal, target included, to a training example of their device, and test examples
            that are equal to one of training or validation.
        overlapping: Those of the others that are windows of a recording and share at least half a window, step for step.
        devices: On how many devices there are such examples.
        evaluated: How many validation and test examples the devices have that were looked at.
        sampled: How many devices were looked at; None for all.
    """

    name: str
    equal: int
    overlapping: int
    devices: int
    evaluated: int
    sampled: int | None = None

    @property
    def message(self) -> str | None:
        """What to say of it, in one line; None where nothing is shared."""
        if not self.devices:
            return None
        of = f" of {self.sampled} devices that were looked at" if self.sampled else ""
        advice = "; split.method=block keeps neighbours together, a larger split.gap parts them" * (
            self.overlapping > 0
        )
        return (
            f"data {self.name}: of {self.evaluated} validation and test examples{of} {self.equal} are equal to, and "
            f"{self.overlapping} overlap with, examples that their device learns from (on {self.devices} devices){advice}"
        )


def check_leakage(data: FederatedData) -> Leakage:
    """Warns with their number where examples are shared or overlap between a device's parts; see `find_leakage`."""
    found = find_leakage(data)
    if found.message:
        warnings.warn(found.message, LeakageWarning, stacklevel=2)
    return found


def find_leakage(data: FederatedData) -> Leakage:
    """Counts the examples that are shared or overlap between a device's train, validation and test parts.

    Overlaps are sought in recordings `[examples, steps, channels]` or `[examples, channels, steps]` (the longer axis is that
    of time) and in tokens `[examples, steps]` of 16 steps or more. Two windows overlap where the first half of one stands
    anywhere in the other, unless it hardly changes, as in silence or padding. Comparing is by 64-bit codes.

    Of a fleet of more than 4,000 devices so many are looked at, drawn always alike.
    """
    equal = overlapping = devices = evaluated = 0
    looked_at = _looked_at(data.devices)
    for device in looked_at:
        train, validation, test = data.parts(device)
        shared = _shared(data, validation, train)
        more = _shared(data, test, np.concatenate([train, validation]))
        equal, overlapping = equal + shared[0] + more[0], overlapping + shared[1] + more[1]
        devices += bool(sum(shared) + sum(more))
        evaluated += len(validation) + len(test)
    sampled = len(looked_at) if len(looked_at) < data.devices else None
    return Leakage(data.name, equal, overlapping, devices, evaluated, sampled)


def _looked_at(devices: int) -> Sequence[int]:
    if devices <= MOST:
        return range(devices)
    drawn: list[int] = np.random.default_rng(0).choice(devices, MOST, replace=False).tolist()
    return sorted(drawn)


def _shared(data: FederatedData, part: Indices, known: Indices) -> tuple[int, int]:
    """Returns how many examples of a part are equal to, and how many others overlap with, known examples."""
    rows = {_row(data, i) for i in known.tolist()}
    equal = np.array([_row(data, i) in rows for i in part.tolist()], np.bool_)
    if (length := _steps(data.x)) is None:
        return int(equal.sum()), 0
    mine, theirs = (_runs(_step_codes(data.x[index]), length // 2) for index in (part, known))
    starts_there = mine.moving & np.isin(mine.codes[:, 0], theirs.codes)
    holds_a_start = np.isin(mine.codes, theirs.codes[theirs.moving, 0]).any(axis=1)
    return int(equal.sum()), int(np.count_nonzero((starts_there | holds_a_start) & ~equal))


def _row(data: FederatedData, example: int) -> int:
    return hash((data.x[example].tobytes(), data.y[example].tobytes()))


def _steps(x: Array) -> int | None:
    """Returns the number of time steps of a window; None where examples are no windows, or too short to tell."""
    length = max(x.shape[1:]) if x.ndim == 3 else x.shape[1] if x.ndim == 2 and x.dtype.kind == "i" else 0
    return length if length >= 2 * _SHORTEST_RUN else None


def _step_codes(windows: Array) -> Codes:
    """Returns a code of the channels at each step, `[windows, steps]`."""
    if windows.ndim == 3 and windows.shape[2] > windows.shape[1]:
        windows = windows.swapaxes(1, 2)
    numbers = np.ascontiguousarray(windows).view(np.uint32).astype(np.uint64)
    numbers = numbers[..., np.newaxis] if numbers.ndim == 2 else numbers
    return np.asarray((numbers * np.resize(_WORDS, numbers.shape[-1])).sum(axis=-1, dtype=np.uint64))


@dataclass(frozen=True)
class _Runs:
    """The runs of a number of steps in windows.

    Attributes:
        codes: `[windows, places]` a code for the run that starts at each place.
        moving: `[windows]` whether at least half of the steps of the first run differ from the step before.
    """

    codes: Codes
    moving: NDArray[np.bool_]


def _runs(steps: Codes, length: int) -> _Runs:
    """Returns the runs of a length, coded by the polynomial hash of Karp and Rabin (1987) modulo 2^64."""
    count = steps.shape[1]
    inverse = pow(_BASE, -1, 2**64)
    powers, inverses = (np.array([pow(b, t, 2**64) for t in range(count)], np.uint64) for b in (_BASE, inverse))
    sums = np.cumsum(np.pad(steps * powers, ((0, 0), (1, 0))), axis=1, dtype=np.uint64)
    codes = (sums[:, length:] - sums[:, : count + 1 - length]) * inverses[: count + 1 - length]
    changes = np.count_nonzero(steps[:, 1:length] != steps[:, : length - 1], axis=1)
    return _Runs(codes, changes >= length // 2)
