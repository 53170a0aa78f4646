"""Why a device's work does not count: an aggregate goes on without what would ruin it."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from odt_sim.errors import InvocationError
from odt_sim.model.weights import exceeds, is_finite
from odt_sim.strategies.base import Tensors, Update, array_of

TIMED_OUT = "timed out"

ADVICE = {
    "failed in LiteRT": "look at the data of these devices",
    "not finite": "a smaller train.learning_rate may help",
    "update too large": "a smaller train.learning_rate or a larger fleet.largest_update may help",
    "timed out": "give them more time (fleet.timeout)",
    "worker died or hung": "give them more time (fleet.timeout) or workers more memory, or see why with backend=serial",
    "worker died": "give workers more memory (fewer backend.actors), or see why with backend=serial",
}
"""What to do, by a part of the reason; the first that fits counts."""

NAMED = 5  # devices, at most, that a line names for each reason


@dataclass(frozen=True)
class Excluded:
    """What takes the place of a device's result.

    Attributes:
        reason: Why there is none, as the records say it.
    """

    reason: str


def failed(error: InvocationError) -> Excluded:
    """Returns what LiteRT told, without the model's path: the same on every machine."""
    lines = [line.strip() for line in str(error.__cause__).splitlines() if line.strip()]
    return Excluded(f"failed in LiteRT: {lines[0] if lines else 'no reason given'}")


def unusable(update: Update, state: Tensors, largest: float | None) -> Excluded | None:
    """Returns why a device is to be left out of the round; None where it is not.

    Args:
        update: What the device would send.
        state: What it would keep.
        largest: The L2 norm, over all tensors of the update together, that it may have; None for any.
    """
    sent = [array_of(tensor) for tensor in update.tensors.values()]
    if not is_finite(update.losses):
        return Excluded("loss not finite")
    if not all(map(is_finite, sent)):
        return Excluded("update not finite")
    if not 0 < update.weight < math.inf:
        return Excluded("weight not finite or not above 0")
    if not all(is_finite(array_of(tensor)) for tensor in state.values()):
        return Excluded("state not finite")
    return Excluded("update too large") if largest is not None and exceeds(sent, largest) else None


def listed(excluded: Mapping[int, str]) -> str:
    """Returns which devices were left out, and why, in words; empty where none was."""
    by_reason: dict[str, list[int]] = {}
    for device, reason in excluded.items():
        by_reason.setdefault(reason, []).append(device)
    return "; ".join(f"{reason} on device {_first(devices)}" for reason, devices in by_reason.items())


def advice(excluded: Mapping[int, str]) -> str:
    """Returns what to do about each of the reasons; empty where no device was left out."""
    found = [next(do for part, do in ADVICE.items() if part in reason) for reason in excluded.values()]
    return "; ".join(dict.fromkeys(found))


def failures_after(
    failures: Mapping[int, int], contributed: Collection[int], excluded: Collection[int]
) -> Mapping[int, int]:
    """Returns what holds after a round.

    Args:
        failures: What held before.
        contributed: The ids of the devices whose updates were used; each begins anew.
        excluded: The ids of those that were left out.
    """
    kept = {device: failures[device] for device in failures.keys() - set(contributed)}
    return dict(sorted({**kept, **{device: failures.get(device, 0) + 1 for device in excluded}}.items()))


def quarantined(failures: Mapping[int, int], after: int | None) -> set[int]:
    """Returns the ids of the devices that take part in no further round.

    Args:
        failures: What holds after the last round.
        after: The failures in a row; None for never.
    """
    return set() if after is None else {device for device, times in failures.items() if times >= after}


def _first(devices: list[int]) -> str:
    more = f" and {len(devices) - NAMED} more" if len(devices) > NAMED else ""
    return ", ".join(map(str, devices[:NAMED])) + more
