"""A joint loss, which is not a sum over a model's outputs, is reported once."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from odt_sim.metrics.device import model_figures, model_loss
from odt_sim.model.contract.manifest import Output

ANSWERS = {"p": np.float32([[1], [2]]), "q": np.float32([[0], [4]])}
TARGETS = {"p": np.float32([[1], [0]]), "q": np.float32([[1], [4]])}


def test_one_loss_of_two_outputs() -> None:
    outputs = (Output("p", task="regression"), Output("q", task="other"))
    model: Any = SimpleNamespace(outputs=outputs)
    losses = {"": np.float32([1.5, 2.5])}
    figures = model_figures(model, ANSWERS, TARGETS, losses, {})
    assert figures == {"loss": 2.0, "examples": 2, "mse_p": 2.0, "mae_p": 1.0, "r2_p": pytest.approx(-7)}
    assert model_loss(model, ANSWERS, TARGETS, losses, {}) == 2.0
