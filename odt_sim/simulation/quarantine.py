"""Devices that fail in round after round: later rounds go on without them."""

from collections.abc import Collection, Mapping

Failures = Mapping[int, int]
"""For each device that was left out of the last round it took part in: of how many in a row."""


def failures_after(failures: Failures, contributed: Collection[int], excluded: Collection[int]) -> Failures:
    """Returns what holds after a round.

    Args:
        failures: What held before.
        contributed: The ids of the devices whose updates were used; each begins anew.
        excluded: The ids of those that were left out.
    """
    kept = {device: failures[device] for device in failures.keys() - set(contributed)}
    return dict(sorted({**kept, **{device: failures.get(device, 0) + 1 for device in excluded}}.items()))


def quarantined(failures: Failures, after: int | None) -> set[int]:
    """Returns the ids of the devices that take part in no further round.

    Args:
        failures: What holds after the last round.
        after: The failures in a row; None for never.
    """
    return set() if after is None else {device for device, times in failures.items() if times >= after}
