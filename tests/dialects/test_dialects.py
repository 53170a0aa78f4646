"""The generated files match their descriptions on real LiteRT."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray

from dialects import BUILTIN, FLEX, FOUR, Dialect, generated
from odt_sim.model.reading import flatbuffer


def losses(dialect: Dialect, steps: int) -> Iterator[float]:
    """Train on one batch and yield the losses."""
    own = dialect.signatures["train"]
    x, y = dialect.batch(rows=8)
    step = Interpreter(model_content=dialect.content, num_threads=1).get_signature_runner(own["name"])
    for _ in range(steps):
        yield float(step(**{own["x"]: x, own["y"]: y})[own["loss"]])


@pytest.mark.parametrize("model", sorted({*BUILTIN} - {"not_a_number"}))
def test_builtin_file_trains_under_its_own_names(model: str) -> None:
    dialect = generated(model)
    found = list(losses(dialect, 20))
    assert found[-1] < 0.9 * found[0]
    assert not dialect.flex


@pytest.mark.parametrize("model", FLEX)
def test_classic_file_has_flex_ops(model: str) -> None:
    dialect = generated(model)
    flat = flatbuffer.read(dialect.content, model)
    flex = {
        role: [op for op in flat.operators[own["name"]] if "Flex" in op] for role, own in dialect.signatures.items()
    }
    assert flex["save"]
    assert flex["load"]
    assert bool(flex["train"]) == (model != "load_embeds")  # the gradient of its last layer needs none
    (path,) = flat.signatures[dialect.signatures["load"]["name"]].inputs.values()
    assert (path.dtype, path.shape) == ("string", (1,) if model == "checkpoint_vector" else ())


def test_first_loss_is_the_cross_entropy_of_the_shipped_weights() -> None:
    dialect = generated("numbered")
    call = Interpreter(model_content=dialect.content, num_threads=1).get_signature_runner
    x, y = dialect.batch(rows=8)
    w: list[NDArray[Any]] = [call("parameters")()[f"a{i}"].astype(np.float64) for i in range(4)]
    exponentials = np.exp(np.maximum(x @ w[0] + w[1], 0) @ w[2] + w[3])
    probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
    assert call("train")(x=x, y=y)["loss"] == pytest.approx(-np.log((probabilities * y).sum(axis=1)).mean(), rel=1e-6)


def test_shipped_nan_makes_the_loss_nan() -> None:
    assert np.isnan(list(losses(generated("not_a_number"), 1))).all()


def test_declared_targets_are_refused() -> None:
    dialect = generated("refused_shape")
    flat = flatbuffer.read(dialect.content, "refused_shape")
    assert flat.signatures["train"].inputs["y"].shape == (-1, 4)
    step = Interpreter(model_content=dialect.content, num_threads=1).get_signature_runner("train")
    with pytest.raises((RuntimeError, ValueError), match=r"(?i)broadcast|dim|failed to prepare"):
        step(x=dialect.batch(rows=8)[0], y=np.zeros((8, 4), np.float32))


def test_four_files_without_signatures_form_one_model() -> None:
    files = {name: Interpreter(model_content=generated(name).content, num_threads=1) for name in FOUR}
    assert [interpreter.get_signature_list() for interpreter in files.values()] == [{}] * 4
    shapes = {name: sorted(tuple(d["shape"]) for d in files[name].get_input_details()) for name in FOUR}
    assert shapes["four_files_train_head"] == [(3,), (5, 3), (20, 3), (20, 5)]
    assert shapes["four_files_optimizer"] == [(), (3,), (3,), (5, 3), (5, 3)]
