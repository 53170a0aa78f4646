"""Training a group of parameters alone."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from odt_sim import Device, TrainableModel
from odt_sim.errors import ModelError

Draw = Callable[..., tuple[NDArray[Any], NDArray[Any]]]
RATE = 0.1
HEAD = {"classifier/kernel", "classifier/bias"}
BODY = {"hidden/kernel", "hidden/bias"}
NORM = {"norm/gamma", "norm/beta", "norm/moving_mean", "norm/moving_variance"}


def changed(device: Device, before: Any) -> set[str]:
    """Return the names of changed parameters, without the model's name."""
    after = device.parameters()
    names = [name for name in after.layout.names if not np.array_equal(after[name], before[name])]
    return {name.partition("/")[2] for name in names}


@pytest.mark.parametrize(
    ("group", "expected"),
    [(None, HEAD | BODY | NORM), ("head", HEAD), ("body", BODY), ("norm", NORM), ("body_norm", BODY | NORM)],
)
def test_only_the_group_changes(grouped: TrainableModel, rows: Draw, group: str | None, expected: set[str]) -> None:
    x, y = rows(grouped, 10)
    for work in (lambda d: d.train(1, RATE, group=group), lambda d: d.train_batch(x[:3], y[:3], RATE, group=group)):
        device = Device(grouped, (x, y))
        before = device.parameters()
        work(device)
        assert changed(device, before) == expected


def test_groups_see_the_same_batches(grouped_without_offset: TrainableModel, rows: Draw) -> None:
    """With a tiny step size, all groups except the head see equal losses; the head uses the body's statistics."""
    data = rows(grouped_without_offset, 10)
    whole, body = (Device(grouped_without_offset, data).train(1, 1e-12, group=g) for g in (None, "body_norm"))
    np.testing.assert_array_equal(whole, body)


def test_missing_group_is_refused(digits_mlp: TrainableModel, grouped: TrainableModel, rows: Draw) -> None:
    with pytest.raises(
        ModelError,
        match=r"cannot train only group 'head' \(it can train all at once\); export it with train_groups=\['head'\]",
    ):
        Device(digits_mlp, rows(digits_mlp, 2)).train(group="head")
    with pytest.raises(
        ModelError, match=r"cannot train only group 'head_norm' \(it can train body, body_norm, head, n"
    ):
        Device(grouped, rows(grouped, 2)).train_batch(*rows(grouped, 2), group="head_norm")
    for group in ("step", ""):
        with pytest.raises(ModelError, match=f"unknown parameter group '{group}'; expected "):
            Device(grouped, rows(grouped, 2)).train(group=group)


def test_only_moving_group_needs_no_signature(
    softmax: TrainableModel, frozen: TrainableModel, digits_mlp: TrainableModel, rows: Draw, calls: Counter[str]
) -> None:
    for model, group in ((softmax, "head"), (digits_mlp, "body_head"), (frozen, "head")):
        data = rows(model, 5)
        np.testing.assert_array_equal(*(Device(model, data).train(1, RATE, group=g) for g in (None, group)))
    assert calls["head_train"] == 2 * 2
    assert "train_head" in softmax.capabilities & frozen.capabilities
    assert "train_head" not in digits_mlp.capabilities
    for model in (frozen, digits_mlp):
        with pytest.raises(ModelError, match="cannot train only group 'body'"):
            Device(model, rows(model, 2)).train(group="body")
