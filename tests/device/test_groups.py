"""Training a group of parameters alone."""

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
    """Returns the names of the parameters that are others than before, without the model's name."""
    after = device.parameters()
    names = [name for name in after.layout.names if not np.array_equal(after[name], before[name])]
    return {name.partition("/")[2] for name in names}


@pytest.mark.parametrize(
    ("group", "expected"),
    [(None, HEAD | BODY | NORM), ("head", HEAD), ("body", BODY), ("norm", NORM), ("body_norm", BODY | NORM)],
)
def test_a_group_alone_is_changed(grouped: TrainableModel, rows: Draw, group: str | None, expected: set[str]) -> None:
    x, y = rows(grouped, 10)
    for work in (lambda d: d.train(1, RATE, group=group), lambda d: d.train_batch(x[:3], y[:3], RATE, group=group)):
        device = Device(grouped, (x, y))
        before = device.parameters()
        work(device)
        assert changed(device, before) == expected


def test_the_batches_are_those_of_all_parameters_together(grouped_without_offset: TrainableModel, rows: Draw) -> None:
    """At a step size of nothing all groups see the same losses, but the head's: its body normalizes by its statistics."""
    data = rows(grouped_without_offset, 10)
    whole, body = (Device(grouped_without_offset, data).train(1, 1e-12, group=g) for g in (None, "body_norm"))
    np.testing.assert_array_equal(whole, body)


def test_a_group_that_the_model_cannot_train_alone(
    softmax: TrainableModel, frozen: TrainableModel, grouped: TrainableModel, rows: Draw
) -> None:
    with pytest.raises(
        ModelError,
        match=r"cannot train group 'head' alone \(it can train all at once\); export it with train_groups=\['head'\]",
    ):
        Device(softmax, rows(softmax, 2)).train(group="head")
    with pytest.raises(
        ModelError, match=r"cannot train group 'head_norm' alone \(it can train body, body_norm, head, norm"
    ):
        Device(grouped, rows(grouped, 2)).train_batch(*rows(grouped, 2), group="head_norm")
    with pytest.raises(ModelError, match=r"cannot train group 'step' alone"):
        Device(grouped, rows(grouped, 2)).train(group="step")
    assert Device(frozen, rows(frozen, 2)).train(1, RATE, group="head").shape == (1,)  # by its steps on embeddings
