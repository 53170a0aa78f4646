"""Files with several inputs and outputs whose signatures or manifest contradict each other."""

from collections.abc import Callable
from typing import Any

import pytest
from edits import drop, rename, reshape

from odt_sim import TrainableModel
from odt_sim.errors import ModelError

Edit = Callable[[bytes, Callable[[Any], None]], bytes]


def test_the_manifest_orders_inputs_and_outputs(recommender: TrainableModel, heads: TrainableModel) -> None:
    assert [*recommender.inputs] == ["user", "item"]
    assert (recommender.inputs["item"].name, recommender.inputs["item"].shape) == ("x_item", (8,))
    assert ([*heads.targets], [*heads.answers]) == (["kind", "size"], ["kind", "size"])
    assert [(output.name, output.loss_weight, output.task) for output in heads.outputs] == [
        ("kind", 1.0, "classification"),
        ("size", 0.5, "regression"),
    ]
    assert heads.classes_by_target == {"kind": 3, "size": None}
    assert not {"x_user", "x_item", "y", "y_kind"} & (recommender.capabilities | heads.capabilities)
    with pytest.raises(ModelError, match="has the inputs user, item; expected exactly one"):
        _ = recommender.x


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "recommender",
            rename("infer", "inputs", "x_user", "x_who"),
            "'train' takes x_item, x_user, but 'infer' takes x_item, x_who",
        ),
        ("recommender", rename("train", "inputs", "x_user", "user"), "signature 'train' has an unknown input 'user'"),
        ("recommender", reshape("train", "inputs", "x_item", []), r"input 'x_item' of 'train' is int32 \[\]"),
        ("heads", rename("train", "inputs", "y_kind", "y_sort"), "signature 'loss' has an unknown input 'y_kind'"),
        (
            "heads",
            reshape("loss", "inputs", "y_kind", [8, 2]),
            r"input 'y_kind' of 'loss' is int32 \[8, 2\], but elsewhere",
        ),
        ("heads", rename("loss", "outputs", "losses", "errors"), "'loss' should return 'losses', float32"),
        (
            "heads",
            rename("infer", "outputs", "logits_kind", "kind"),
            "signature 'loss' has an unknown input 'logits_kind'",
        ),
        ("heads", drop("loss"), ""),
    ],
)
def test_signatures_that_do_not_fit_are_refused(
    name: str, change: Any, message: str, request: pytest.FixtureRequest, edited: Edit
) -> None:
    """Without the signature `loss`, two losses with formulas here are computed by the host."""
    content = edited(request.getfixturevalue(name).content, change)
    if not message:
        assert not TrainableModel.from_content(content).returns_losses
        return
    with pytest.raises(ModelError, match=message) as caught:
        TrainableModel.from_content(content, where="m.tflite")
    assert str(caught.value).startswith("m.tflite: ")
