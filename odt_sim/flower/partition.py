"""Partition by the partitioners of flwr-datasets."""

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from odt_sim._support.system import check_extra
from odt_sim.data.dataset import Dataset, Indices
from odt_sim.errors import ConfigurationError


def partitioned(dataset: Dataset, devices: int | None, seed: int, *, partitioner: Mapping[str, Any]) -> list[Indices]:
    """Return the examples that a partitioner of flwr-datasets assigns to each device.

    The partitioner gets the column `index`, and `label` and `user` if the data has them.

    Args:
        dataset: The data.
        devices: The number of devices; None lets a partitioner by natural ids decide.
        seed: The partitioner's seed, if it takes one and has none.
        partitioner: The partitioner's class as `_target_`, and its settings.

    Raises:
        ConfigurationError: The extra `flower` is missing, or the partitioner is not found or needs the number of devices.
    """
    check_extra("flower")
    from datasets import Dataset as Table

    columns: dict[str, Any] = {"index": np.arange(len(dataset.x))}
    if dataset.has_labels:
        columns["label"] = dataset.labels()
    if dataset.users is not None:
        columns["user"] = dataset.users
    settings = dict(partitioner)
    made_by = _found(settings.pop("_target_", None))
    made = made_by(**{**_supplied(made_by, devices, seed), **settings})
    made.dataset = Table.from_dict(columns)
    return [np.asarray(made.load_partition(device)["index"], np.int64) for device in range(made.num_partitions)]


def _found(target: Any) -> Callable[..., Any]:
    module, _, name = str(target).rpartition(".")
    try:
        return getattr(import_module(module), name)  # type: ignore[no-any-return]
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"partition.partitioner._target_: cannot import {target} ({error}); expected a class such as "
            "flwr_datasets.partitioner.DirichletPartitioner"
        ) from error


def _supplied(made_by: Callable[..., Any], devices: int | None, seed: int) -> dict[str, int]:
    """Return the number of devices and the seed, each only if the partitioner accepts it."""
    taken = inspect.signature(made_by).parameters
    if devices is None and "num_partitions" in taken:
        raise ConfigurationError("fleet.devices: expected a number for this partitioner, found null")
    supplied = {"num_partitions": devices, "seed": seed}
    return {name: value for name, value in supplied.items() if name in taken and value is not None}
