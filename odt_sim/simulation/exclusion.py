"""Why a device's work does not count: an aggregate goes on without what would ruin it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from odt_sim.errors import InvocationError
from odt_sim.model.weights import exceeds, is_finite
from odt_sim.strategies.base import Tensors, Update, array_of

TIMED_OUT = "timed out"

NAMED = 5  # devices, at most, that a line names for each reason


@dataclass(frozen=True)
class Sick:
    """What takes the place of a device's result.

    Attributes:
        reason: Why there is none, as the records say it.
    """

    reason: str


def failed(error: InvocationError) -> Sick:
    """Returns what LiteRT told, without the model's path: the same on every machine."""
    lines = [line.strip() for line in str(error.__cause__).splitlines() if line.strip()]
    return Sick(f"failed in LiteRT: {lines[0] if lines else 'no reason given'}")


def unusable(update: Update, state: Tensors, largest: float | None) -> Sick | None:
    """Returns why a device is to be left out of the round; None where it is not.

    Args:
        update: What the device would send.
        state: What it would keep.
        largest: The L2 norm, over all tensors of the update together, that it may have; None for any.
    """
    sent = [array_of(tensor) for tensor in update.tensors.values()]
    if not is_finite(update.losses):
        return Sick("loss not finite")
    if not all(map(is_finite, sent)):
        return Sick("update not finite")
    if not 0 < update.weight < math.inf:
        return Sick("weight not finite or not above 0")
    if not all(is_finite(array_of(tensor)) for tensor in state.values()):
        return Sick("state not finite")
    return Sick("update too large") if largest is not None and exceeds(sent, largest) else None


def told(excluded: Mapping[int, str]) -> str:
    """Returns which devices were left out, and why, in words; empty where none was."""
    by_reason: dict[str, list[int]] = {}
    for device, reason in excluded.items():
        by_reason.setdefault(reason, []).append(device)
    return "; ".join(f"{reason} on device {_listed(devices)}" for reason, devices in by_reason.items())


def _listed(devices: list[int]) -> str:
    more = f" and {len(devices) - NAMED} more" if len(devices) > NAMED else ""
    return ", ".join(map(str, devices[:NAMED])) + more
