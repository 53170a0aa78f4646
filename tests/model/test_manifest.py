"""The manifest as JSON, and refused manifests."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odt_sim.errors import ModelError
from odt_sim.model.contract.manifest import GROUPS, LOSSES, ROLES, Manifest, Output, Parameter

MANIFEST = Manifest(
    name="small",
    parameters=(Parameter("dense/kernel", (2, 3)), Parameter("dense/bias", (3,), group="head", role="statistic")),
    loss="mean_squared_error",
    from_logits=False,
    optimizer={"name": "SGD", "learning_rate": 0.01, "momentum": 0.0, "weight_decay": None},
    batch_size=4,
)

SEVERAL = replace(
    MANIFEST,
    loss="sparse_categorical_crossentropy",
    inputs=("user", "item"),
    outputs=(
        Output("rating", "sparse_categorical_crossentropy", from_logits=False, task="classification", mask=True),
        Output("price", "log_cosh", loss_weight=0.5, task="regression", metrics=("mae",)),
    ),
)

parameters = st.builds(
    Parameter,
    name=st.text(),
    shape=st.lists(st.integers(0, 9)).map(tuple),
    role=st.sampled_from(ROLES),
    group=st.sampled_from(GROUPS),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.slow
@given(
    st.builds(
        Manifest,
        name=st.text(),
        parameters=st.lists(parameters, max_size=4, unique_by=lambda p: p.name).map(tuple),
        loss=st.sampled_from(LOSSES),
        from_logits=st.booleans(),
        optimizer=st.dictionaries(st.text(), json_values, max_size=3),
        batch_size=st.integers(1, 100),
    )
)
def test_json_round_trip(manifest: Manifest) -> None:
    assert Manifest.from_json(manifest.to_json(), "m.tflite") == manifest
    assert Manifest.from_json(manifest.to_json().encode(), "m.tflite") == manifest


@given(field=st.sampled_from([*json.loads(MANIFEST.to_json()), "another"]), value=json_values)
def test_random_fields_are_read_or_refused_in_one_line(field: str, value: Any) -> None:
    text = json.dumps({**json.loads(MANIFEST.to_json()), field: value})
    message = "m.tflite: its manifest"
    try:
        assert Manifest.from_json(text, "m.tflite").plain_sgd in (True, False)
    except ModelError as error:
        message = str(error)
    assert message.startswith("m.tflite: its manifest")
    assert "\n" not in message


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        MANIFEST.to_json().replace('"random_states": []', '"random_states": [1e999]'),
        MANIFEST.to_json().replace('"SGD"', "7"),
    ],
    ids=["too deep", "infinite", "a name that is none"],
)
def test_extreme_json_is_refused(text: str) -> None:
    with pytest.raises(ModelError, match=r"^m\.tflite: its manifest is damaged \("):
        Manifest.from_json(text, "m.tflite")


def changed(**fields: Any) -> str:
    return json.dumps({**json.loads(MANIFEST.to_json()), **fields})


def changed_outputs(**values: Any) -> str:
    fields = json.loads(SEVERAL.to_json())
    fields["outputs"][0].update(values)
    if "name" in values:
        fields["outputs"][1]["name"] = values["name"]
    return json.dumps(fields)


def without(field: str) -> str:
    fields = json.loads(MANIFEST.to_json())
    del fields[field]
    return json.dumps(fields)


@pytest.mark.parametrize(
    "manifest",
    [
        SEVERAL,
        replace(MANIFEST, loss="hinge", outputs=(Output("", "hinge", False, task="classification"),)),
        replace(SEVERAL, outputs=(replace(SEVERAL.outputs[0], ignore_class=-1), SEVERAL.outputs[1])),
        replace(MANIFEST, loss="none", outputs=()),
    ],
    ids=["several", "another loss", "ignored class", "no loss"],
)
def test_outputs_are_read_as_written(manifest: Manifest) -> None:
    assert Manifest.from_json(manifest.to_json(), "m.tflite") == manifest


def test_one_output_is_described_by_the_loss() -> None:
    assert MANIFEST.outputs == (Output("", "mean_squared_error", from_logits=False, task="regression"),)
    assert replace(MANIFEST, loss="none", outputs=()).outputs[0].task == "other"


def test_first_versions_have_fewer_fields_and_a_fingerprint() -> None:
    fields = json.loads(MANIFEST.to_json())
    for later in ("inputs", "outputs", "train_inputs", "checked"):
        del fields[later]
    first = {**fields, "format_version": 1, "fingerprint": "ab" * 32}
    assert Manifest.from_json(json.dumps(first), "m.tflite") == MANIFEST


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "damaged"),
        ("[]", "damaged"),
        (MANIFEST.to_json()[:-9], "damaged"),
        (b"\xff\xfe\xfd", "damaged"),
        (without("loss"), "loss"),
        (without("format_version"), "format_version"),
        (changed(surplus=1), "surplus"),
        (changed(format_version=7), "format version 7, but this odt_sim reads up to 6; upgrade"),
        (changed(loss="hinge"), "its loss is 'hinge', but that of its first output is 'mean_squared_error'"),
        (changed(batch_size="4"), "batch_size is '4', expected a int"),
        (changed(batch_size=0), "its batch_size is 0, expected at least 1"),
        (changed(from_logits="no"), "from_logits is 'no', expected a bool"),
        (changed(optimizer=None), "optimizer is None, expected a dict"),
        (changed(parameters=[{"name": "a", "shape": [1]}] * 2), "two parameters have the same name"),
        (changed(parameters=[{"name": "a", "shape": [1], "role": "spare"}]), "a has role 'spare'"),
        (changed(parameters=[{"name": "a", "shape": [1], "dtype": "int8"}]), "dtype 'int8'"),
        (changed(parameters=[{"name": "a", "shape": [1], "group": "tail"}]), "group 'tail'"),
        (changed_outputs(name="a"), r"its outputs are \['a', 'b'\]|its outputs are \['a', 'a'\]"),
        (changed_outputs(task="guess"), "output 'rating' has task 'guess'"),
        (
            changed_outputs(loss="hinge"),
            "its loss is 'sparse_categorical_crossentropy', but that of its first output is 'hinge'",
        ),
        (changed_outputs(metrics=1), "damaged"),
        (changed_outputs(ignore_class="0"), "its output 'rating' has ignore_class '0', expected an int"),
    ],
)
def test_other_json_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        Manifest.from_json(text, "m.tflite")
    assert str(caught.value).startswith("m.tflite: its manifest")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("optimizer", "plain"),
    [
        ({"name": "SGD"}, True),
        ({"name": "sgd", "momentum": 0.0, "nesterov": False, "weight_decay": None, "ema_momentum": 0.99}, True),
        ({"name": "SGD", "momentum": 0.9}, False),
        ({"name": "SGD", "weight_decay": 0.01}, False),
        ({"name": "SGD", "clipnorm": 1.0}, False),
        ({"name": "SGD", "use_ema": True}, False),
        ({"name": "SGD", "gradient_accumulation_steps": 2}, False),
        ({"name": "SGD", "loss_scale_factor": 8.0}, False),
        ({"name": "Adam"}, False),
        ({}, False),
    ],
)
def test_plain_sgd_has_no_other_settings(optimizer: dict[str, Any], plain: bool) -> None:
    assert replace(MANIFEST, optimizer=optimizer).plain_sgd is plain
