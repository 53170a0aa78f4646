"""Runs with each partition and drift of conf/."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import FEW, NPZ, ran

# --- partition --------------------------------------------------------------------------------------------------------


def skew(labels: Sequence[Any]) -> float:
    """Return the mean total variation distance between a device's class mix and the fleet's, over all examples."""
    mixes = np.array([np.bincount(device, minlength=10) for device in labels])
    sizes = mixes.sum(axis=1)
    distances = np.abs(mixes / sizes[:, None] - mixes.sum(axis=0) / sizes.sum()).sum(axis=1) / 2
    return float(distances @ sizes / sizes.sum())


def unevenness(labels: Sequence[Any]) -> float:
    """Return the ratio of the largest device's examples to the median device's."""
    sizes = list(map(len, labels))
    return max(sizes) / float(np.median(sizes))


def equal(labels: Sequence[Any]) -> bool:
    sizes = sorted(map(len, labels))
    return sizes[-1] - sizes[0] <= 1 and skew(labels) < 0.15


def skewed(labels: Sequence[Any]) -> bool:
    return skew(labels) > 0.4 and unevenness(labels) > 1.5 and min(map(len, labels)) >= 10


def skewed_in_quantity(labels: Sequence[Any]) -> bool:
    return skew(labels) < 0.15 and unevenness(labels) > 1.5 and min(map(len, labels)) >= 10


def two_classes(labels: Sequence[Any]) -> bool:
    return {len(np.unique(device)) for device in labels} == {2}


def users(labels: Sequence[Any]) -> bool:
    """Return whether devices are users: example i has label i mod 10 and user i mod 6."""
    return [sorted(device) for device in labels] == [sorted([*range(user % 2, 10, 2)] * 2) for user in range(6)]


PARTITIONS: dict[str, tuple[dict[str, Any], Callable[[Sequence[Any]], bool]]] = {
    "by_user": ({**NPZ, "data.users": "writers", "fleet.devices": "null", "fleet.unseen": 1}, users),
    "dirichlet": ({}, skewed),
    "iid": ({}, equal),
    "pathological": ({}, two_classes),
    "quantity_skew": ({}, skewed_in_quantity),
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_partition_skews_as_named(name):
    """Each partition passes its own check and no other."""
    data = ran(partition=name, **PARTITIONS[name][0]).data()
    labels = [data.y[data.indices[start:end]] for start, end in pairwise([*data.offsets[:, 0], len(data.indices)])]
    assert [key for key, (_, check) in PARTITIONS.items() if check(labels)] == [name], (
        skew(labels),
        unevenness(labels),
    )


# --- arrival ----------------------------------------------------------------------------------------------------------

ARRIVALS: dict[str, dict[str, Any]] = {
    "none": {},
    "in_order": {},
    "by_class": {},
    "by_time": {
        **{"data": "table", "data.path": "times.csv", "data.target": "label", "data.times": "at"},
        "data.standardize": True,
        **{"model.build.input_shape": "[1]", "model.build.classes": 3},
    },
    "by_key": {"arrival.key": "{_target_:hydra.utils.get_method,path:arriving.newest_first}"},
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "by_time" else pytest.mark.slow) for name in ARRIVALS]
)
def test_arrival_orders_examples(name, pictures, tmp_path):
    """Devices train on a part of their examples, and the records name the arrival."""
    Path("times.csv").write_text("x,label,at\n" + "".join(f"{i},{i % 3},2026-01-{i % 28 + 1:02}\n" for i in range(60)))
    (tmp_path / "arriving.py").write_text("def newest_first(data, seed):\n    return -data.y\n")
    own = {**NPZ, **ARRIVALS[name]} if name != "by_time" else ARRIVALS[name]
    periods = {} if name == "none" else {"arrival.periods": 2, "arrival.rounds": 1}
    run = ran(**own, partition="iid", arrival=name, **periods, **FEW)
    assert (f"arrival={name}" in run.summary["settings"]["partition"]) == (name != "none")
    assert ("period_1_accuracy" in run.records.rounds()[0]) == (name != "none")


# --- drift ------------------------------------------------------------------------------------------------------------

DRIFTS: dict[str, dict[str, Any]] = {
    "colour": {"model.build.input_shape": "[8,8,3]"},
    "label_permutation": {},
    "none": {},
    "rotation": {},
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if DRIFTS[name] else ()) for name in DRIFTS]
)
def test_drift_changes_inputs_or_labels(name, pictures):
    """Only inputs or labels change, and the records name the drift."""
    run = ran(**NPZ, partition="iid", drift=name, **DRIFTS[name], **FEW)
    data, images = run.data(), pictures[:, :8, :8, np.newaxis] / np.float32(255)
    changed = {
        "colour": data.x.shape == (60, 8, 8, 3) and np.allclose(data.x.sum(axis=3, keepdims=True), images),
        "label_permutation": not np.array_equal(data.y, np.arange(60) % 10),
        "none": np.array_equal(data.x, images) and np.array_equal(data.y, np.arange(60) % 10),
        "rotation": data.x.shape == images.shape and not np.array_equal(data.x, images),
    }
    assert [drift for drift, is_so in changed.items() if is_so] == [name]
    assert (name in run.summary["settings"]["partition"]) == (name != "none")
