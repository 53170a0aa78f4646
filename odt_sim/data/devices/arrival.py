"""The order in which a device's examples arrive, for training that continues over days.

Each device's examples are ordered by a key and cut into periods of equal size. In the rounds of a period, the device
trains on the examples that arrived in it (or on all so far), and is evaluated on the test examples of the periods so
far.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from odt_sim._support.checks import check_value, checked_count
from odt_sim.data.dataset import Array, Dataset
from odt_sim.data.devices.federated import Arrival, FederatedData, Kept, device_name
from odt_sim.errors import DataError

_STREAM = 5  # separates these random numbers from those of partitions, splits, sources and drifts


def none(data: FederatedData, seed: int) -> FederatedData:
    """Return the data unchanged: all examples are available from the first round on."""
    return data


def in_order(data: FederatedData, seed: int, *, periods: int = 5, rounds: int = 5, keep: Kept = "new") -> FederatedData:
    """Make examples arrive in the order of the data set.

    Args:
        data: The data.
        seed: Not used.
        periods: The number of periods, at least 2.
        rounds: The number of rounds in each period.
        keep: `new` to train only on the examples of the period, `all` to train on all so far.
    """
    return _arriving(data, np.arange(len(data.y)), periods, rounds, keep, "in_order")


def by_time(data: FederatedData, seed: int, *, periods: int = 5, rounds: int = 5, keep: Kept = "new") -> FederatedData:
    """Make examples arrive in the order of their times.

    Args:
        data: The data, with `times`.
        seed: Not used.
        periods: The number of periods, at least 2.
        rounds: The number of rounds in each period.
        keep: `new` to train only on the examples of the period, `all` to train on all so far.

    Raises:
        DataError: The data has no times.
    """
    if data.times is None:
        raise DataError(
            f"data {data.name}: has no times; set their column (data.times for a table), return Dataset(..., "
            "times=...), "
            "or use arrival=in_order"
        )
    return _arriving(data, data.times, periods, rounds, keep, "by_time")


def by_class(data: FederatedData, seed: int, *, periods: int = 5, rounds: int = 5, keep: Kept = "new") -> FederatedData:
    """Make the classes arrive one after another, in a random order that all devices share.

    Args:
        data: The data, with one class label for each example.
        seed: The seed of the order.
        periods: The number of periods, at least 2.
        rounds: The number of rounds in each period.
        keep: `new` to train only on the examples of the period, `all` to train on all so far.

    Raises:
        DataError: The examples do not have one class each.
    """
    labelled = Dataset(data.name, data.x, data.y, classes=data.classes)
    if not labelled.has_labels:
        raise DataError(f"data {data.name}: expected one class label for each example; use arrival=in_order or by_time")
    labels = labelled.labels()
    position = np.random.default_rng([seed, _STREAM]).permutation(int(labels.max()) + 1)
    return _arriving(data, position[labels], periods, rounds, keep, "by_class")


def by_key(
    data: FederatedData,
    seed: int,
    *,
    key: Callable[[FederatedData, int], Array],
    periods: int = 5,
    rounds: int = 5,
    keep: Kept = "new",
) -> FederatedData:
    """Make examples arrive in the order of a key that a function computes.

    Args:
        data: The data.
        seed: The seed, for the function.
        key: A function of the data and the seed that returns a number for each example, `[examples]`; smaller ones
            arrive earlier.
        periods: The number of periods, at least 2.
        rounds: The number of rounds in each period.
        keep: `new` to train only on the examples of the period, `all` to train on all so far.

    Raises:
        DataError: The function does not return a number for each example.
    """
    keys = np.asarray(key(data, seed))
    if keys.shape != (len(data.y),) or keys.dtype.kind not in "iuf":
        raise DataError(
            f"arrival.key: returned {keys.dtype} {list(keys.shape)}, expected a number for each of the {len(data.y)} examples"
        )
    return _arriving(data, keys, periods, rounds, keep, f"by_key {getattr(key, '__name__', 'function')}")


def _arriving(data: FederatedData, keys: Array, periods: int, rounds: int, keep: Kept, name: str) -> FederatedData:
    checked_count("periods", periods, 2, group="arrival")
    checked_count("rounds", rounds, 1, group="arrival")
    check_value("arrival.keep", Kept, keep)
    arrival = Arrival(_periods(data, keys, periods), periods, rounds, keep)
    _check_trains(data, arrival)
    spread = f"{data.spread} arrival={name} periods={periods} rounds={rounds} keep={keep}"
    return replace(data, arrival=arrival, spread=spread)


def _periods(data: FederatedData, keys: Array, periods: int) -> Array:
    """Return the period of each example; each device's examples are sorted by key and cut into equal parts."""
    sizes = data.offsets[:, 3] - data.offsets[:, 0]
    owners = np.repeat(np.arange(len(sizes)), sizes)
    order = data.indices[np.lexsort((data.indices, keys[data.indices], owners))]
    places = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    period = np.full(len(keys), -1, np.int16)
    period[order] = places * periods // np.repeat(sizes, sizes)
    return period


def _check_trains(data: FederatedData, arrival: Arrival) -> None:
    """Check that each device has training examples in each period."""
    for device in range(data.devices):
        train = data.train(device)
        periods = arrival.period[train]
        missing = np.flatnonzero(np.bincount(periods, minlength=arrival.periods) == 0)
        if len(missing):
            raise DataError(
                f"device {device_name(device, data.users)}: none of its {len(train)} training examples is in period "
                f"{missing[0] + 1} of {arrival.periods}; lower arrival.periods or fleet.devices, leave such users out, or "
                "with split.method=block give each period its own sequences (Dataset.sequences), which are cut one by one"
            )
