"""Real files with one change to an optional signature, and their errors."""

from collections.abc import Callable
from typing import Any

import pytest
from edits import drop, drop_input, rename, reshape, signature

from odt_sim import TrainableModel
from odt_sim.errors import ModelError
from odt_sim.model.contract.signatures import parts_of

Edit = Callable[[bytes, Callable[[Any], None]], bytes]
OFFSET = "set_gradient_offset"


def name(key: str, new: str) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        signature(model, key).signatureKey = new

    return change


def without_mu(model: Any) -> None:
    for key in ("train", "train_head", "train_body", "train_norm", "train_body_norm", "head_train"):
        drop_input(key, "mu")(model)


CASES: list[tuple[Any, str]] = [
    (
        drop_input("train_head", "sample_weight"),
        "signature 'train_head' should take the inputs of 'train': learning_rate, mu, sample_weight, x, y; found",
    ),
    (
        reshape("train_norm", "inputs", "x", [8, 6]),
        r"'train_norm' should take the inputs of 'train'; its 'x' is float32 \[8, 6\], expected float32 \[4, 6\]",
    ),
    (
        rename("train_body", "outputs", "loss", "cost"),
        "signature 'train_body' has no output 'loss', a float32 number",
    ),
    (drop("embed"), "expected all of embed, head_train, head_infer, or only embed; found no signature 'embed'"),
    (drop("head_infer"), "only embed; found no signature 'head_infer'"),
    (rename("embed", "outputs", "embedding", "h"), "signature 'embed' has no output 'embedding', found h"),
    (rename("embed", "inputs", "x", "image"), "signature 'embed' should take the inputs of 'infer': x; found image"),
    (
        reshape("head_train", "inputs", "embedding", [4, 7]),
        r"'embedding' is float32 \[4, 7\], expected float32 \[4, 5\]",
    ),
    (drop_input("head_train", "y"), "with the embedding instead of x: embedding, .*y; found"),
    (
        rename("head_infer", "inputs", "embedding", "x"),
        "'head_infer' should take only the embedding: embedding; found x",
    ),
    (
        reshape("head_infer", "outputs", "logits", [4, 2]),
        r"'head_infer' returns float32 \[4, 2\], 'infer' float32 \[4, 3\]; expected equal shapes",
    ),
    (drop_input(OFFSET, "b5"), f"signature '{OFFSET}' takes 5 tensors; expected one for each of the 6 trainable"),
    (rename(OFFSET, "inputs", "b1", "bias"), r"expected the weights as b0\.\.b5, found 'bias'"),
    (
        reshape(OFFSET, "inputs", "b0", [5, 6]),
        rf"input b0 of '{OFFSET}' is float32 \[5, 6\]; expected float32 \[6, 5\], as the parameter transfer/hidden",
    ),
    (without_mu, f"has a signature '{OFFSET}' but 'train' no input 'mu'"),
]


@pytest.mark.parametrize(
    ("change", "message"),
    [pytest.param(*case, marks=[] if number < 6 else pytest.mark.slow) for number, case in enumerate(CASES)],
)
def test_wrong_optional_signature_is_one_line(grouped: TrainableModel, edited: Edit, change: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        TrainableModel.from_content(edited(grouped.content, change), where="model.tflite")
    assert str(caught.value).startswith("model.tflite: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        drop("head_train", "head_infer"),
        drop("embed", "head_train", "head_infer"),
        drop(OFFSET),
        name("train_norm", "validate"),
        name("train_norm", "train_on_server"),
    ],
)
def test_optional_signatures_may_be_missing(grouped: TrainableModel, edited: Edit, change: Any) -> None:
    model = TrainableModel.from_content(edited(grouped.content, change))
    assert model.capabilities >= {"train", "infer", "train_head", "mu"}


def test_joined_groups_are_split() -> None:
    assert [parts_of(group) for group in ("head", "body_norm", "step", "head_step", "")] == [
        ("head",),
        ("body", "norm"),
        (),
        (),
        (),
    ]


def test_offset_without_manifest_covers_all_parameters(grouped: TrainableModel, edited: Edit) -> None:
    """Without a manifest all eight parameters count as trainable."""

    def forget(model: Any) -> None:
        model.metadata = []

    with pytest.raises(ModelError, match="takes 6 tensors; expected one for each of the 8 trainable parameters"):
        TrainableModel.from_content(edited(grouped.content, forget))
