"""Terms of an author's own, what the manifest says of them, and refused ones."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from odt_sim import Device, TrainableModel
from odt_sim.errors import ExportError, ModelError
from odt_sim.export import export_model
from odt_sim.export.cache import TERM_NAMES, with_needs
from odt_sim.export.terms import TERMS, term
from odt_sim.model.contract.manifest import METADATA_NAME, TrainInput
from odt_sim.model.editing.metadata import with_metadata


@term(TrainInput("anchor", (None, 2)), TrainInput("pull", default=0.5))
def to_anchor(model: Any, x: Any, y: Any, inputs: Any) -> Any:
    return inputs["pull"] * keras.ops.sum((model(x) - inputs["anchor"]) ** 2, -1)


def linear(outputs: int = 2) -> keras.Model:
    return keras.Sequential([keras.Input([3]), keras.layers.Dense(outputs, kernel_initializer="ones")])


@pytest.fixture(scope="module")
def anchored(tmp_path_factory: pytest.TempPathFactory) -> TrainableModel:
    path = tmp_path_factory.mktemp("terms") / "anchored.tflite"
    export_model(linear(), path, loss="mean_squared_error", optimizer="sgd", batch_size=4, terms=[to_anchor])
    return TrainableModel.load(path)


def test_own_term_adds_its_loss(anchored: TrainableModel) -> None:
    """Ones times ones are 3: the squared error is 9, and 2 outputs lie 1 from their anchor of 2."""
    x, y = np.ones((3, 3), np.float32), np.zeros((3, 2), np.float32)
    assert Device(anchored, (x, y)).train(inputs={"anchor": np.full((3, 2), 2.0)}) == pytest.approx(9 + 0.5 * 2)
    assert Device(anchored, (x, y)).train(inputs={"pull": 0}) == pytest.approx(9)


def test_manifest_describes_the_inputs(anchored: TrainableModel) -> None:
    assert anchored.manifest is not None
    assert anchored.train_inputs == {
        "anchor": TrainInput("anchor", (None, 2)),
        "pull": TrainInput("pull", default=0.5),
    }
    assert {"anchor", "pull"} <= anchored.capabilities


def test_manifest_that_describes_another_shape_is_refused(anchored: TrainableModel) -> None:
    assert anchored.manifest is not None
    text = anchored.manifest.to_json().replace('"anchor", "shape": [null, 2]', '"anchor", "shape": [null, 5]')
    with pytest.raises(
        ModelError, match=r"'anchor' of 'train' is float32 \[4, 2\], but its manifest declares float32 \[4, 5\]"
    ):
        TrainableModel.from_content(with_metadata(anchored.content, METADATA_NAME, text.encode()))


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        (["distance"], "unknown term 'distance'; expected contrastive, .*, prox, or the path"),
        ([lambda model, x, y, inputs: 0.0], "declares no inputs; decorate it"),
        (["distillation"], r"distillation needs a model with one output \[batch, classes\] and a cross-entropy"),
        ([to_anchor, to_anchor], "expected different terms"),
        (["no_such_module.term"], "no_such_module.term cannot be imported"),
    ],
)
def test_terms_that_do_not_fit_are_refused(tmp_path: Path, terms: Any, message: str) -> None:
    with pytest.raises(ExportError, match=message):
        export_model(linear(), tmp_path / "m.tflite", loss="mean_squared_error", optimizer="sgd", terms=terms)


def test_needs_become_options_of_the_export() -> None:
    assert set(TERM_NAMES) == set(TERMS)
    spec = {"name": "m", "train_groups": ["head"]}
    needs = frozenset({"train_body_norm", "head_infer", "distillation", "gradient_offset", "plain_sgd"})
    assert with_needs(spec, needs) == {
        "name": "m",
        "train_groups": ["head", "body_norm"],
        "terms": ["distillation"],
        "embed": True,
        "gradient_offset": True,
    }
    assert with_needs(spec, frozenset({"plain_sgd"})) == spec
    assert with_needs(spec, frozenset({"lora_rank_8"})) == {**spec, "lora_rank": 8}
    assert with_needs({**spec, "lora_rank": 2}, frozenset({"lora_rank_8"})) == {**spec, "lora_rank": 2}
