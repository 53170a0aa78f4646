"""Fixtures that build updates of a few devices from rows of numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from odt_sim.strategies.base import Update, Updates


def update(tensors: dict[str, Any], weight: float = 1.0) -> Update:
    arrays = {name: np.asarray(tensor, np.float32) for name, tensor in tensors.items()}
    return Update(arrays, weight, np.zeros(1, np.float32))


@pytest.fixture(scope="session")
def single() -> Callable[..., Updates]:
    """Return a function that builds updates of devices 0, 1, ... from rows (tensor `v`) or mappings of tensors."""

    def make(*rows: Any) -> Updates:
        each = {i: update(row if isinstance(row, dict) else {"v": row}, weight=i + 1.0) for i, row in enumerate(rows)}
        return Updates({}, sum(u.weight for u in each.values()), len(rows), 9, each)

    return make


@pytest.fixture(scope="session")
def combined(single: Callable[..., Updates]) -> Callable[..., Any]:
    """Return a function that aggregates such rows (tensor `v`), as float64."""

    def combine(aggregator: Any, *rows: Any) -> Any:
        updates = single(*rows)
        aggregator.check(updates.count)
        mean = aggregator.combine(updates, updates.count, np.random.default_rng(0)).mean
        assert {np.asarray(tensor).dtype for tensor in mean.values()} == {np.dtype(np.float32)}
        return mean["v"].astype(np.float64)

    return combine
