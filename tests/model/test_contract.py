"""Real files with one change to a signature, and their errors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ai_edge_litert import schema_py_generated as schema
from edits import drop, drop_input, rename, reshape, retype, signature, tensor

from odt_sim import TrainableModel
from odt_sim.errors import ModelError
from odt_sim.model.contract.signatures import ordered, parts_of
from odt_sim.model.reading.flatbuffer import TensorInfo

Edit = Callable[[bytes, Callable[[Any], None]], bytes]


def no_signatures(model: Any) -> None:
    model.signatureDefs = []


def two_outputs(model: Any) -> None:
    outputs = signature(model, "infer").outputs
    more = schema.TensorMapT()
    more.name, more.tensorIndex = "more", outputs[0].tensorIndex
    outputs.append(more)


def test_unchanged_file_is_valid(foreign: Path, edited: Edit) -> None:
    content = edited((foreign / "plain.tflite").read_bytes(), lambda model: None)
    assert set(TrainableModel.from_content(content).signatures) == {"train", "infer", "parameters", "restore"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (no_signatures, "no signature 'train', found none; it is not trainable, export it with odt_sim.export"),
        (drop("train"), "no signature 'train', found infer, parameters, restore"),
        (drop("infer"), "no signature 'infer'"),
        (drop("parameters"), "no signature 'parameters'"),
        (drop("restore"), "no signature 'restore'"),
        (rename("train", "inputs", "x", "image"), "signature 'train' has no input 'x', found image, y"),
        (rename("train", "inputs", "y", "label"), "signature 'train' has no input 'y', found x, label"),
        (rename("infer", "inputs", "x", "image"), "signature 'infer' has no input 'x', found image"),
        (retype("train", "inputs", "x", schema.TensorType.STRING), r"input 'x' of 'train' is string \[4, 6\]"),
        (retype("infer", "inputs", "x", schema.TensorType.RESOURCE), r"input 'x' of 'infer' is resource \[4, 6\]"),
        (
            reshape("train", "inputs", "y", []),
            r"input 'y' of 'train' is int32 \[\]; expected numbers with the batch as the first axis",
        ),
        (rename("train", "outputs", "loss", "cost"), r"no output 'loss', a float32 number, found cost float32 \[\]"),
        (
            reshape("train", "outputs", "loss", [4]),
            r"a float32 number, found loss float32 \[4\]; return the batch's mean",
        ),
        (two_outputs, "'infer' should have an output 'logits' or a single output, found scores, more"),
        (rename("parameters", "outputs", "a1", "bias"), r"expected the weights as a0\.\.a1, found 'bias'"),
        (rename("restore", "inputs", "a1", "a2"), "inputs of 'restore' differ from the outputs of 'parameters'"),
        (reshape("restore", "inputs", "a0", [3, 6]), "inputs of 'restore' differ from the outputs of 'parameters'"),
        (
            retype("parameters", "outputs", "a0", schema.TensorType.FLOAT16),
            r"parameter a0 is float16 \[6, 3\]; expected",
        ),
        (
            reshape("parameters", "outputs", "a0", [6, -1]),
            r"parameter a0 is float32 \[6, -1\]; expected float32 of a fixed",
        ),
    ],
)
def test_broken_contract_is_one_line(foreign: Path, edited: Edit, change: Any, message: str) -> None:
    content = edited((foreign / "plain.tflite").read_bytes(), change)
    with pytest.raises(ModelError, match=message) as caught:
        TrainableModel.from_content(content, where="model.tflite")
    assert str(caught.value).startswith("model.tflite: ")
    assert "\n" not in str(caught.value)


def test_unknown_input_of_train_is_refused(foreign: Path, edited: Edit) -> None:
    content = edited(
        (foreign / "dynamic.tflite").read_bytes(), rename("train", "inputs", "learning_rate", "temperature")
    )
    with pytest.raises(
        ModelError, match="'train' has an unknown input 'temperature'; expected only x, y, sample_weight"
    ):
        TrainableModel.from_content(content)


def test_unknown_input_of_infer_is_refused(foreign: Path, edited: Edit) -> None:
    def add(model: Any) -> None:
        more = schema.TensorMapT()
        more.name, more.tensorIndex = "mask", signature(model, "infer").inputs[0].tensorIndex
        signature(model, "infer").inputs.append(more)

    with pytest.raises(ModelError, match="'infer' has an unknown input 'mask'; expected only x"):
        TrainableModel.from_content(edited((foreign / "plain.tflite").read_bytes(), add))


def test_flex_ops_are_named(foreign: Path) -> None:
    with pytest.raises(
        ModelError, match=r"flex.tflite: 'train' contains Flex ops \(FlexSoftplusGrad\) .*odt-sim deflex"
    ):
        TrainableModel.load(foreign / "flex.tflite")


@pytest.mark.parametrize(
    "change", [drop("restore_optimizer_state"), rename("restore_optimizer_state", "inputs", "s0", "t0")]
)
def test_unrestorable_optimizer_is_refused(momentum: TrainableModel, edited: Edit, change: Any) -> None:
    with pytest.raises(ModelError, match="'restore_optimizer_state' differ from the outputs of 'optimizer_state'"):
        TrainableModel.from_content(edited(momentum.content, change))


@pytest.mark.parametrize("name", ["hidden", "hidden_branch", "hidden_loop"])
def test_momentum_that_no_signature_sets_is_refused(foreign: Path, name: str) -> None:
    message = rf"{name}: 'train' changes the variable \S+, which neither .* sets, so all devices would share it"
    with pytest.raises(ModelError, match=message) as caught:
        TrainableModel.from_content((foreign / f"{name}.tflite").read_bytes(), where=name)
    assert "\n" not in str(caught.value)


def test_unread_variable_is_accepted(foreign: Path) -> None:
    assert "train" in TrainableModel.load(foreign / "write_only.tflite").signatures


def test_manifest_with_other_shapes_is_refused(softmax: TrainableModel, edited: Edit) -> None:
    def transpose(model: Any) -> None:
        for key, side in (("parameters", "outputs"), ("restore", "inputs")):
            tensor(model, key, side, "a0").shape = [10, 64]

    with pytest.raises(ModelError, match="the manifest's shapes differ from the signature 'parameters'"):
        TrainableModel.from_content(edited(softmax.content, transpose))


def test_parameters_are_ordered_by_number() -> None:
    shuffled = [TensorInfo(f"a{i}", (), "float32") for i in (10, 2, 0, 1, 9, 3, 8, 4, 7, 5, 6)]
    assert [t.name for t in ordered(shuffled, "a", "model")] == [f"a{i}" for i in range(11)]
    with pytest.raises(ModelError, match=r"expected the weights as a0\.\.a1, found 'a0'"):
        ordered([TensorInfo(name, (), "float32") for name in ("a0", "a2")], "a", "model")


def drop_initializers(model: Any) -> None:
    """Drop the initializers, as some exporters do for Keras variables: LiteRT would read arbitrary memory."""
    once = [i for i, c in enumerate(model.operatorCodes) if c.builtinCode == schema.BuiltinOperator.CALL_ONCE]
    for subgraph in model.subgraphs:
        subgraph.operators = [op for op in subgraph.operators if op.opcodeIndex not in once]


def drop_one_initial_value(model: Any) -> None:
    called = {s.subgraphIndex for s in model.signatureDefs}
    assigns = [i for i, c in enumerate(model.operatorCodes) if c.builtinCode == schema.BuiltinOperator.ASSIGN_VARIABLE]
    for initializer in (s for i, s in enumerate(model.subgraphs) if i not in called):
        last = [op for op in initializer.operators if op.opcodeIndex in assigns][-1]
        initializer.operators.remove(last)


@pytest.mark.parametrize(("change", "count"), [(drop_initializers, 2), (drop_one_initial_value, 1)])
def test_variables_without_initial_values_are_refused(foreign: Path, edited: Edit, change: Any, count: int) -> None:
    content = edited((foreign / "plain.tflite").read_bytes(), change)
    with pytest.raises(
        ModelError, match=rf"bare.tflite: {count} of its variables have no initial values, the first is .+; export"
    ):
        TrainableModel.from_content(content, where="bare.tflite")


# --- optional signatures ----------------------------------------------------------------------------------------------

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


# --- several inputs and outputs ---------------------------------------------------------------------------------------


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
