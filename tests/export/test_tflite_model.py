"""The class-based way, and functions of the author's own: on LiteRT as TensorFlow runs them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import own_models
import pytest
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray
from own_models import BATCH

from odt_sim.export import convert_saved_model, save_model

Batch = dict[str, NDArray[Any]]


@dataclass
class Pair:
    """An author's object, and the interpreter of its file.

    Attributes:
        model: The object.
        saved: Its SavedModel.
        content: Its file.
        interpreter: A fresh interpreter of the file.
    """

    model: Any
    saved: Path
    content: bytes
    interpreter: Interpreter

    def call(self, signature: str, **inputs: Any) -> dict[str, NDArray[Any]]:
        return dict(self.interpreter.get_signature_runner(signature)(**inputs))

    def listed(self, signature: str, prefix: str) -> list[NDArray[Any]]:
        values = self.call(signature)
        return [values[f"{prefix}{i}"] for i in range(len(values))]

    def agree(self, signature: str, batch: Batch) -> None:
        expected = {name: value.numpy() for name, value in getattr(self.model, signature)(**batch).items()}
        found = self.call(signature, **batch)
        assert set(found) == set(expected)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=2e-6, err_msg=name)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Pair]:
    """Returns a function that gives the pair of a class, made once."""
    made: dict[str, Pair] = {}

    def make(name: str) -> Pair:
        if name not in made:
            keras.utils.set_random_seed(5)
            model, saved = getattr(own_models, name)(), tmp_path_factory.mktemp("saved")
            save_model(model, saved)
            content = convert_saved_model(saved, batch_size=BATCH)
            made[name] = Pair(model, saved, content, Interpreter(model_content=content, num_threads=1))
        return made[name]

    return make


def batches(name: str, steps: int) -> list[Batch]:
    random = np.random.default_rng(0)
    shape = (6, 6, 2) if name == "Pictures" else (5,)
    made: list[Batch] = []
    for _ in range(steps):
        x = random.normal(size=(BATCH, *shape)).astype(np.float32)
        y: NDArray[Any] = random.integers(0, 2, BATCH).astype(np.int32)
        if name == "Pictures":
            y = np.eye(3, dtype=np.float32)[y]
        elif name == "Keras2":
            y = random.normal(size=(BATCH, 2)).astype(np.float32)
        weight = {"sample_weight": random.uniform(0.5, 1.5, BATCH).astype(np.float32)} if name == "Plain" else {}
        made.append({"x": x, "y": y, **weight})
    return made


def slots_of(model: Any) -> list[NDArray[Any]]:
    """What an author's object remembers between steps, in the order in which the steps come to it."""
    if isinstance(model, own_models.Plain):
        return [v.numpy() for v in (*model.sums, model.steps)]
    network, optimizer = (getattr(model, "model", None) or model.network), getattr(model, "optimizer", None)
    optimizer = optimizer or network.optimizer
    skipped = [optimizer.learning_rate] + ([] if "Adam" in type(optimizer).__name__ else [optimizer.iterations])
    known = {id(v) for v in (*network.weights, *network.metrics_variables, *optimizer.variables)}
    random = [v for v in network.variables if id(v) not in known]
    return [v.numpy() for v in (*random, *(v for v in optimizer.variables if not any(v is s for s in skipped)))]


@pytest.mark.parametrize("name", ["Pictures", "Keras2", "Custom", "Plain"])
def test_five_steps_agree_with_tensorflow(name: str, pair: Any) -> None:
    """Each step's own loss, every weight, and whatever else stays between steps."""
    both = pair(name)
    before = both.listed("parameters", "a")
    for batch in batches(name, 5):
        both.agree("train", batch)
    after = [v.numpy() for v in both.model.parameters().values()]
    moved = [float(np.abs(new - old).max()) for new, old in zip(after, before, strict=True)]
    limit = 1e-5 * max(moved) + 1e-7
    assert max(moved) > 1e-3
    for found, expected in zip(both.listed("parameters", "a"), after, strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=limit)
    slots = slots_of(both.model)
    for found, expected in zip(both.listed("optimizer_state", "s"), slots, strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=limit)
    both.agree("infer", {"x": batches(name, 1)[0]["x"]})


@pytest.mark.parametrize("name", ["Pictures", "Plain"])
def test_further_signatures_are_kept_and_agree(name: str, pair: Any) -> None:
    both = pair(name)
    batch = {key: value for key, value in batches(name, 1)[0].items() if key in ("x", "y")}
    both.agree("validate", batch)
