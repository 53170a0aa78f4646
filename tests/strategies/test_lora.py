"""LoRA against plain numpy: adapters and the head are averaged, the rest is fixed."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from odt_sim import Device, TrainableModel
from odt_sim.errors import StrategyError
from odt_sim.model.contract.manifest import METADATA_NAME
from odt_sim.model.editing.metadata import with_metadata
from odt_sim.strategies.shared_parts.lora import LoRA

RATE = 0.1  # as in the runs, see conftest


def softmax(z: Any) -> Any:
    exponentials = np.exp(z - z.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def step(w: dict[str, Any], x: Any, y: Any) -> dict[str, Any]:
    """Return the weights after a step of descent on A, B and the head."""
    x = x.astype(np.float64)
    before = x @ (w["kernel"] + w["a"] @ w["b"]) + w["bias"]
    hidden = np.maximum(before, 0)
    error = (softmax(hidden @ w["head"] + w["head_bias"]) - np.eye(3)[y]) / len(y)
    kernel = x.T @ (error @ w["head"].T * (before > 0))
    gradient = {
        "a": kernel @ w["b"].T,
        "b": w["a"].T @ kernel,
        "head": hidden.T @ error,
        "head_bias": error.sum(axis=0),
    }
    return w | {name: w[name] - RATE * g for name, g in gradient.items()}


def named(weights: Any) -> dict[str, Any]:
    ends = {"dense_0/kernel": "kernel", "dense_0/bias": "bias", "lora_kernel_a": "a", "lora_kernel_b": "b"}
    ends |= {"classifier/kernel": "head", "classifier/bias": "head_bias"}
    return {
        short: weights[name].astype(np.float64)
        for name in weights.layout.names
        for end, short in ends.items()
        if name.endswith(end)
    }


def test_agrees_with_numpy(small_twin: Any, with_adapters: TrainableModel) -> None:
    run = small_twin.run(LoRA(), with_adapters)
    w = initial = named(Device(with_adapters, (small_twin.data.x, small_twin.data.y)).parameters())
    assert w["a"].shape == (6, 4)
    assert not w["b"].any()
    for round in range(1, run.rounds + 1):
        models = []
        for device in range(3):
            own = w
            for x, y in small_twin.batches(device, round):
                own = step(own, x, y)
            models.append(own)
        w = {name: np.average([own[name] for own in models], axis=0, weights=small_twin.data.train_sizes) for name in w}
    assert np.abs(w["a"] @ w["b"]).max() > 1e-2
    found = named(run.deployed(0))
    for name, expected in w.items():
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(found["kernel"], initial["kernel"])


def test_adapters_and_head_travel_alone(small_twin: Any, with_adapters: TrainableModel) -> None:
    sent = small_twin.run(LoRA(), with_adapters, rounds=1).weights.layout
    assert sorted(name.rpartition("/")[2] for name in sent.names) == [
        "bias",
        "kernel",
        "lora_kernel_a",
        "lora_kernel_b",
    ]
    assert sent.size == 6 * 4 + 4 * 5 + 5 * 3 + 3


def test_other_rank_is_refused(with_adapters: TrainableModel) -> None:
    with pytest.raises(
        StrategyError, match=r"strategy lora: needs lora_rank_2, which the model .* lacks .*lora_rank_4"
    ):
        LoRA(rank=2).check(with_adapters)


def test_model_that_trains_more_is_refused(with_adapters: TrainableModel) -> None:
    parameters = tuple(replace(p, role="trainable") for p in with_adapters.manifest.parameters)
    manifest = replace(with_adapters.manifest, parameters=parameters).to_json().encode()
    model = TrainableModel.from_content(with_metadata(with_adapters.content, METADATA_NAME, manifest))
    with pytest.raises(StrategyError, match=r"the model with_adapters also trains .*dense_0/kernel; freeze it"):
        LoRA().check(model)
