"""Each finding has a file that shows it, and healthy files show none."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from dialects import generated

from odt_sim import TrainableModel
from odt_sim.cli.main import main
from odt_sim.doctor import findings
from odt_sim.doctor.diagnosis import Diagnosis, diagnose
from odt_sim.doctor.file_checks import flex_ops
from odt_sim.doctor.findings import kinds
from odt_sim.model.editing.tree import kind_of, packed, unpacked
from odt_sim.model.reading.graph_reader import read_graph

ROLES = {"train": "train", "infer": "infer", "parameters": "parameters", "restore": "restore"}
OPS = schema.BuiltinOperator

FAST = {
    "infer_without_relu",
    "step_mean",
    "step_swapped",
    "infer_together",
    "restore_swapped",
    "not_a_number",
    "checkpoint_scalar",
    "numbered",
}
"""The others are slow."""

SIGNATURES = {
    "step_mean": "D402",
    "step_swapped": "D403",
    "step_sum": "D404",
    "step_after": "D405",
    "step_other": "D406",
    "step_nan": "D407",
    "step_nothing": "D501",
    "step_partly": "D502",
    "step_wildly": "D503",
    "infer_noisily": "D601",
    "infer_together": "D602",
    "infer_and_train": "D603",
    "infer_without_relu": "D205",
    "restore_swapped": "D306",
    "restore_partly": "D307",
}
"""The fault of each signature in `patients.py`."""

DIALECTS = {
    "four_files_bottleneck": {"D104", "D106"},
    "one_row": {"D108"},
    "checkpoint_scalar": {"D201", "D202", "D204", "D303", "D304"},
    "not_a_number": {"D301"},
    "closed_momentum": {"D303", "D304", "D305"},
    "refused_shape": {"D401"},
    "numbered": set(),
    "for_fl": set(),
    "sparse_float": set(),
}


def cases(table: dict[str, Any]) -> list[Any]:
    return [pytest.param(*case, marks=() if case[0] in FAST else pytest.mark.slow) for case in table.items()]


def ids(diagnosis: Diagnosis) -> set[str]:
    return {finding.kind.id for finding in diagnosis.findings}


@pytest.mark.parametrize(("signature", "expected"), cases(SIGNATURES))
def test_fault_of_a_signature_is_found(signature: str, expected: str, patient: Path) -> None:
    role = signature.partition("_")[0].replace("step", "train")
    diagnosis = diagnose(patient, {**ROLES, role: signature})
    allowed = {"step_mean": {"D305"}, "restore_partly": {"D306"}, "infer_without_relu": {"D406"}}.get(signature, set())
    assert expected in ids(diagnosis) <= {expected, *allowed}
    [found] = (finding for finding in diagnosis.findings if finding.kind.id == expected)
    assert found.where == signature
    assert diagnosis.prevented == any(finding.kind.prevents for finding in diagnosis.findings)


@pytest.mark.slow
def test_healthy_signatures_of_the_same_file_show_nothing(patient: Path) -> None:
    diagnosis = diagnose(patient, ROLES)
    assert not diagnosis.findings
    assert diagnosis.measured["loss"] == "categorical_crossentropy of logits"
    assert 0 < diagnosis.measured["train_ms"] < 1000
    assert 10e6 < diagnosis.measured["bytes"] < 1e9


@pytest.mark.parametrize(("model", "expected"), cases(DIALECTS))
def test_faults_of_a_dialect_are_found(model: str, expected: set[str]) -> None:
    assert ids(diagnose(generated(model).path)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits_cnn"])
def test_own_exports_are_healthy(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    model: TrainableModel = request.getfixturevalue(name)
    (tmp_path / "m.tflite").write_bytes(model.content)
    diagnosis = diagnose(tmp_path / "m.tflite")
    assert ids(diagnosis) == {"D108"}
    assert [verdict.trains for verdict in diagnosis.verdicts.values()] == [True, True, True]


def edited(content: bytes, change: Callable[[Any], None]) -> bytes:
    model = unpacked(content)
    change(model)
    return packed(model)


def subgraph(model: Any, signature: str) -> Any:
    [found] = (each for each in model.signatureDefs if each.signatureKey == signature.encode())
    return model.subgraphs[found.subgraphIndex]


def new_code(model: Any, number: int, name: str | None = None) -> int:
    code = schema.OperatorCodeT()
    code.builtinCode, code.deprecatedBuiltinCode, code.customCode, code.version = number, min(number, 127), name, 1
    model.operatorCodes.append(code)
    return len(model.operatorCodes) - 1


def make_custom(model: Any) -> None:
    op = next(op for op in subgraph(model, "train").operators if kind_of(model, op) == OPS.LOG_SOFTMAX)
    op.opcodeIndex, op.builtinOptionsType, op.builtinOptions = new_code(model, OPS.CUSTOM, "MyLoss"), 0, None


def make_unknown(model: Any) -> None:
    op = next(op for op in subgraph(model, "train").operators if kind_of(model, op) == OPS.LOG_SOFTMAX)
    op.opcodeIndex, op.builtinOptionsType, op.builtinOptions = new_code(model, 100_000), 0, None


def remove_initializers(model: Any) -> None:
    for each in model.subgraphs:
        each.operators = [op for op in each.operators if kind_of(model, op) != OPS.CALL_ONCE]


def remove_inference(model: Any) -> None:
    model.signatureDefs = [each for each in model.signatureDefs if each.signatureKey != b"infer"]


def keep_inference(model: Any) -> None:
    """Keep the converter's output for a Keras model: one signature, whose input is named like the model's."""
    [infer] = model.signatureDefs = [each for each in model.signatureDefs if each.signatureKey == b"infer"]
    infer.signatureKey, infer.inputs[0].name = b"serving_default", b"keras_tensor"


def declare_four_features(model: Any) -> None:
    inner = subgraph(model, "infer")
    x = inner.tensors[inner.inputs[0]]
    x.shape, x.shapeSignature = np.array([1, 4], np.int32), np.array([-1, 4], np.int32)


def drop_matmul_input(model: Any) -> None:
    products = (OPS.BATCH_MATMUL, OPS.FULLY_CONNECTED)
    op = next(op for op in subgraph(model, "infer").operators if kind_of(model, op) in products)
    op.inputs = np.array([-1, *op.inputs[1:]], np.int32)


def add_integer_input(model: Any) -> None:
    inner = subgraph(model, "train")
    named = next(each for each in model.signatureDefs if each.signatureKey == b"train")
    tensor, entry = schema.TensorT(), schema.TensorMapT()
    tensor.name, tensor.type, tensor.shape = "step", schema.TensorType.INT64, np.array([3], np.int32)
    entry.name, entry.tensorIndex = "step", len(inner.tensors)
    inner.tensors.append(tensor)
    inner.inputs = np.array([*inner.inputs, entry.tensorIndex], np.int32)
    named.inputs.append(entry)


EDITS = {
    make_unknown: "D102",
    drop_matmul_input: "D103",
    remove_inference: "D105",
    add_integer_input: "D107",
    declare_four_features: "D109",
    make_custom: "D203",
    remove_initializers: "D302",
}


@pytest.mark.slow
@pytest.mark.parametrize(("change", "expected"), EDITS.items())
def test_fault_of_an_edited_file_is_found(change: Callable[[Any], None], expected: str, tmp_path: Path) -> None:
    path = tmp_path / "edited.tflite"
    path.write_bytes(edited(generated("numbered").content, change))
    diagnosis = diagnose(path)
    assert expected in ids(diagnosis)
    assert diagnosis.prevented
    assert diagnosis.verdicts["litert"].trains is False


def test_file_that_only_infers_lacks_a_step_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "inference.tflite"
    path.write_bytes(edited(generated("numbered").content, keep_inference))
    diagnosis = diagnose(path)
    assert ids(diagnosis) == {"D104"}
    assert diagnosis.roles == {"infer": "serving_default"}


@pytest.mark.parametrize(
    "content", [b"", b"random bytes, no model", b"PK\x03\x04 a zip", b"\x40\0\0\0TFL3" + b"\xff" * 9]
)
def test_unreadable_file_is_a_finding(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.tflite"
    path.write_bytes(content)
    assert main(["doctor", str(path), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [finding["id"] for finding in found["findings"]] == ["D101"]
    assert found["verdicts"]["browser"]["trains"] is False


def test_every_kind_is_tested_and_documented() -> None:
    tested = {*SIGNATURES.values(), *EDITS.values(), *set[str]().union(*DIALECTS.values()), "D101"}
    assert {kind.id for kind in kinds()} == tested
    for kind in kinds():
        assert re.fullmatch(r"D[1-6]\d\d", kind.id)
        assert kind.explanation.endswith(".")
        assert kind.remedy.endswith(".")


def test_reference_is_up_to_date() -> None:
    page = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text()
    sections = [section.rstrip() for section in re.split(r"^##+ ", page, flags=re.MULTILINE)]
    described = [
        f"{kind.id}: {kind.title}\n\n{kind.explanation}{' Prevents training.' if kind.prevents else ''}\n\n"
        f"**What to do.** {kind.remedy}"
        for kind in kinds()
    ]
    assert [section for section in sections if re.match(r"D\d", section)] == described


def test_place_of_a_flex_op_is_named() -> None:
    diagnosis = diagnose(generated("checkpoint_scalar").path)
    [flex] = (finding for finding in diagnosis.findings if finding.kind is findings.FLEX_IN_STEP)
    assert flex.where == "train"
    assert flex.found == "FlexReluGrad at hidden/bias"
    assert diagnosis.verdicts["flex"].trains is None


@pytest.mark.slow
def test_place_of_an_op_names_no_parameter_of_another_layer(tmp_path: Path) -> None:
    from dialects.classic import classic

    graph = read_graph(classic("lstm_over_dense").write(tmp_path / "lstm.tflite", 4).read_bytes(), "lstm")
    found = flex_ops(graph, "infer")["FlexTensorListStack"]
    assert found == ["recurrent_1/TensorArrayV2Stack"]
