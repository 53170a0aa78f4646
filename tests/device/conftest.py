"""Rows that fit the shared models."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from odt_sim import TrainableModel
from odt_sim.device.engines.interpreter import InterpreterEngine

Rows = tuple[NDArray[Any], NDArray[Any]]


@pytest.fixture(scope="session")
def rows() -> Callable[..., Rows]:
    """A function that draws `count` random rows for a model."""

    def draw(model: TrainableModel, count: int, seed: int = 0) -> Rows:
        random = np.random.default_rng(seed)
        x = random.normal(size=(count, *model.x.shape[1:])).astype(np.float32)
        if model.loss == "mean_squared_error":
            return x, random.normal(size=(count, *model.y.shape[1:])).astype(np.float32)
        return x, random.integers(0, model.output.shape[-1], count).astype(np.int32)

    return draw


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The number of real calls of each signature."""
    counter = Counter[str]()
    call = InterpreterEngine.call

    def counted(self: InterpreterEngine, signature: str, **inputs: Any) -> Any:
        counter[signature] += 1
        return call(self, signature, **inputs)

    monkeypatch.setattr(InterpreterEngine, "call", counted)
    return counter
