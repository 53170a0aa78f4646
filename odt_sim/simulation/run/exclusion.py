"""Excluded devices: why a device's work does not count, and when a device is quarantined."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from odt_sim.errors import InvocationError
from odt_sim.model.tensors import array_of, size_of
from odt_sim.model.weights import exceeds, is_finite, surely_below
from odt_sim.persistence.records import by_reason
from odt_sim.strategies.base import Tensors, Update

TIMED_OUT = "timed out"

AWAY = "phone is away"
"""The beginning of the reason for an absent device; such exclusions do not count towards quarantine."""

ADVICE = {
    "failed in LiteRT": "check the data of these devices",
    "weight not finite": "give the strategy's Update a finite weight above 0; if it is computed from losses, a smaller "
    "train.learning_rate may help",
    "not finite": "a smaller train.learning_rate may help",
    "update too large": "a smaller train.learning_rate or a larger fleet.largest_update may help",
    AWAY: "keep its page open and its screen on",
    "phone sent": "reload its page",
    "timed out": "give them more time (fleet.timeout)",
    "worker died or hung": "give them more time (fleet.timeout) or workers more memory, or see why with backend=serial",
    "worker died": "give workers more memory (fewer backend.actors), or see why with backend=serial",
}
"""Advice by a part of the reason; the first match is used."""


@dataclass(frozen=True)
class Excluded:
    """The result of an excluded device.

    Attributes:
        reason: The reason, for the records.
        bytes_up: The bytes that the device sent nevertheless.
    """

    reason: str
    bytes_up: int = 0


def litert_failure(error: InvocationError) -> Excluded:
    """Return LiteRT's message as the reason, without the model's path: the same on every machine."""
    lines = [line.strip() for line in str(error.__cause__).splitlines() if line.strip()]
    return Excluded(f"failed in LiteRT: {lines[0] if lines else 'no reason given'}")


def check_update(update: Update, state: Tensors, largest: float | None) -> Excluded | None:
    """Return why a device is excluded from the round; None if it is not.

    Args:
        update: The update that the device sends.
        state: The state that the device keeps.
        largest: The largest allowed L2 norm over all tensors of the update; None for no limit.
    """
    sent = [array_of(tensor) for tensor in update.tensors.values()]
    if not is_finite(update.losses):
        return Excluded("loss not finite", size_of(update.tensors))
    small = largest is not None and surely_below(sent, largest / 2)
    if not small and not all(map(is_finite, sent)):
        return Excluded("update not finite", size_of(update.tensors))
    if not 0 < update.weight < math.inf:
        return Excluded("weight not finite or not above 0", size_of(update.tensors))
    if not all(is_finite(array_of(tensor)) for tensor in state.values()):
        return Excluded("state not finite")  # a device notices this before it sends anything
    too_large = not small and largest is not None and exceeds(sent, largest)
    return Excluded("update too large", size_of(update.tensors)) if too_large else None


def listed(excluded: Mapping[int, str]) -> str:
    """Return the excluded devices by reason, as text; empty if there are none."""
    return "; ".join(f"{reason} on {devices}" for reason, devices in by_reason(excluded.items()).items())


def advice(excluded: Mapping[int, str]) -> str:
    """Return advice on the reasons; empty if no device was excluded."""
    matches = (next(text for part, text in ADVICE.items() if part in reason) for reason in excluded.values())
    return "; ".join(dict.fromkeys(matches))


def failures_after(
    failures: Mapping[int, int], contributed: Collection[int], excluded: Mapping[int, str]
) -> Mapping[int, int]:
    """Return the number of consecutive failures after a round, by device id; a device that contributed has none.

    Args:
        failures: The failures before the round.
        contributed: The ids of the devices that contributed.
        excluded: The reasons of the devices that were excluded, by id.
    """
    if not (failures or excluded):
        return failures
    kept = {device: failures[device] for device in failures.keys() - set(contributed)}
    failed = [device for device, reason in excluded.items() if not reason.startswith(AWAY)]
    return dict(sorted({**kept, **{device: failures.get(device, 0) + 1 for device in failed}}.items()))


def quarantined(failures: Mapping[int, int], after: int | None) -> set[int]:
    """Return the ids of devices with at least `after` consecutive failures; empty if `after` is None (no quarantine)."""
    return set() if after is None else {device for device, times in failures.items() if times >= after}
