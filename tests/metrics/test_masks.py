"""The positions that count."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from odt_sim.metrics.device import masks_of

LABELS = np.array([[1, 9, 2, 1], [9, 0, 0, 0]], np.int32)


@pytest.mark.parametrize(
    ("ignored", "masks", "expected"),
    [
        (None, {}, {}),
        (None, {"": [[1, 1, 0, 0], [1, 0, 0, 0]]}, {"": [[1, 1, 0, 0], [1, 0, 0, 0]]}),
        (9, {}, {"": [[1, 0, 1, 1], [0, 1, 1, 1]]}),
        (9, {"": [[1, 1, 0, 0], [1, 0, 0, 1]]}, {"": [[1, 0, 0, 0], [0, 0, 0, 1]]}),  # both must count
    ],
)
def test_position_counts_if_neither_its_mask_nor_its_label_leaves_it_out(
    ignored: int | None, masks: dict[str, Any], expected: dict[str, Any]
) -> None:
    model: Any = SimpleNamespace(ignored_classes={"": ignored}, targets={"": SimpleNamespace(shape=(-1, 4))})
    found = masks_of(model, {"": LABELS}, {name: np.array(mask, np.float32) for name, mask in masks.items()})
    assert {name: mask.astype(int).tolist() for name, mask in found.items()} == expected
