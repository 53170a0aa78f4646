"""An ensemble averages the probabilities of classifiers of every kind."""

from typing import Any

import numpy as np
import pytest

from odt_sim import Device
from odt_sim.device.predictor import Ensemble
from odt_sim.model.weights import Weights


@pytest.mark.parametrize("name", ["binary", "several_labels"])
def test_probabilities_of_two_classes_are_averaged(request: pytest.FixtureRequest, name: str) -> None:
    model, random = request.getfixturevalue(name), np.random.default_rng(0)
    outputs = model.output.shape[-1]
    x, y = random.normal(size=(8, 6)).astype(np.float32), random.integers(0, 2, (8, outputs)).astype(np.float32)
    device = Device(model, (x, y))
    models = [Weights(model.layout, random.normal(0, size, model.layout.size).astype(np.float32)) for size in (1, 9)]

    def probabilities(weights: Weights) -> Any:
        device.restore(weights)
        return 1 / (1 + np.exp(-np.asarray(device.infer(x), np.float64)))

    mixed = 0.25 * probabilities(models[0]) + 0.75 * probabilities(models[1])
    found = Ensemble(device, models, [0.25, 0.75]).predict(x)
    np.testing.assert_allclose(1 / (1 + np.exp(-found)), mixed, rtol=1e-6)
    assert found.shape == (8, outputs)
