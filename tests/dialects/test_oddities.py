"""Further oddities of foreign files, made by editing generated ones; and corrections."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from dialects import generated
from odt_sim import Device, Simulation, TrainableModel
from odt_sim.cli.commands.inspect import print_model
from odt_sim.cli.main import main
from odt_sim.data import federate, iid
from odt_sim.data.dataset import Dataset
from odt_sim.errors import ModelError
from odt_sim.model.editing.tree import packed, unpacked
from odt_sim.model.foreign.roles import find_roles
from odt_sim.model.reading.graph_reader import read_graph
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.base import Strategy
from odt_sim.strategies.clusters.knn_per import KNNPer
from odt_sim.strategies.shared_parts.fedper import FedPer

OPS = schema.BuiltinOperator


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a generated file with changes."""

    def write(name: str, *changes: Callable[[Any], None]) -> Path:
        model = unpacked(generated(name).content)
        for change in changes:
            change(model)
        path = tmp_path / f"{name}.tflite"
        path.write_bytes(packed(model))
        return path

    return write


def signature(model: Any, name: str) -> Any:
    return next(s for s in model.signatureDefs if s.signatureKey == name.encode())


def initializer(model: Any) -> Any:
    """Return the subgraph that sets the initial values."""
    once = next(
        op
        for s in model.subgraphs
        for op in s.operators
        if model.operatorCodes[op.opcodeIndex].builtinCode == OPS.CALL_ONCE
    )
    return model.subgraphs[once.builtinOptions.initSubgraphIndex]


def poison(model: Any) -> None:
    """Write NaN into all initial values."""
    subgraph = initializer(model)
    own = {t.buffer for t in subgraph.tensors if t.type == schema.TensorType.FLOAT32}
    for tensor in (t for s in model.subgraphs if s is not subgraph for t in s.tensors if t.buffer in own):
        model.buffers.append(schema.BufferT())  # the file's own `initialize` shares the constants
        model.buffers[-1].data = model.buffers[tensor.buffer].data
        tensor.buffer = len(model.buffers) - 1
    for buffer in own:
        data = model.buffers[buffer].data
        if data is not None:
            model.buffers[buffer].data = np.full(len(data) // 4, np.nan, np.float32).view(np.uint8)


def forget_last(model: Any) -> None:
    """Leave one variable without an initial value."""
    subgraph = initializer(model)
    assigns = [
        op for op in subgraph.operators if model.operatorCodes[op.opcodeIndex].builtinCode == OPS.ASSIGN_VARIABLE
    ]
    shapes = {id(op): list(subgraph.tensors[op.inputs[1]].shape) for op in assigns}
    subgraph.operators.remove([op for op in assigns if shapes[id(op)] == [5, 3]][-1])


def without_initial_values(model: Any) -> None:
    initializer(model).operators = []


def rows(count: int = 12) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    x = random.normal(size=(count, 6)).astype(np.float32)
    return x, x[:, :3].argmax(axis=1).astype(np.int32)


def test_training_starts_from_initialize_where_shipped_weights_are_nan(file: Any) -> None:
    model = TrainableModel.load(file("train_epoch", poison))
    device = Device(model, rows())
    shipped = read_graph(generated("train_epoch").content, "shipped").variables.values()
    for name, variable in zip(model.layout.names, shipped, strict=True):
        np.testing.assert_array_equal(device.initial[name], variable.initial.value())
    assert np.isfinite(device.train(epochs=2)).all()


def test_variables_without_initial_values_start_from_initialize(file: Any) -> None:
    model = TrainableModel.load(file("train_epoch", without_initial_values))
    assert Device(model, rows()).initial.isfinite()


def test_variables_without_any_initial_values_are_refused(file: Any) -> None:
    with pytest.raises(ModelError, match="4 of its variables have no initial values, the first is"):
        TrainableModel.load(file("for_fl", without_initial_values))


def test_run_from_nan_is_refused(tmp_path: Path) -> None:
    model = TrainableModel.load(generated("not_a_number").path)
    data = federate(Dataset("made", *rows(24), classes=3), iid, 2, seed=0)
    with pytest.raises(ModelError, match="initial weights are not all finite, the first is hidden/kernel; export it"):
        Simulation(model, data, FedAvg(), rounds=1, directory=tmp_path / "run").run()


def test_slot_without_initial_value_starts_at_zero(file: Any) -> None:
    model = TrainableModel.load(file("closed_momentum", forget_last))
    device = Device(model, rows())
    np.testing.assert_array_equal(device.optimizer_state()[0], np.zeros((5, 3)))
    expected = Device(TrainableModel.load(generated("closed_momentum").path), rows())
    np.testing.assert_array_equal(device.train(epochs=2), expected.train(epochs=2))


def test_missing_loss_is_computed_from_the_inference(file: Any) -> None:
    def without_loss(model: Any) -> None:
        train = signature(model, "train")
        train.outputs = [entry for entry in train.outputs if entry.name != b"output"]

    model = TrainableModel.load(file("odd_outputs", without_loss), loss="categorical_crossentropy")
    expected = Device(TrainableModel.load(generated("odd_outputs").path), rows())
    np.testing.assert_allclose(Device(model, rows()).train(epochs=3), expected.train(epochs=3), rtol=1e-5)


def test_corrections_name_signatures_inputs_and_outputs() -> None:
    path = generated("train_epoch").path
    model = TrainableModel.load(
        path, signatures={"train": {"name": "train_epoch", "x": "x", "y": "y", "loss": "l"}, "infer": "eval"}
    )
    assert list(model.signatures["infer"].outputs) == ["output"]
    for given, message in (
        ({"fit": "train"}, r"model\.signatures: unknown role 'fit'; expected one of train, infer"),
        ({"train": "fit"}, r"model\.signatures\.train: no signature 'fit', found compute_loss, .*set its name"),
        (
            {"train": {"name": "train_epoch", "x": "image"}},
            r"signatures\.train\.x: 'train_epoch' has no input 'image', found x, y",
        ),
        (
            {"train": {"name": "train_epoch", "z": "x"}},
            r"model\.signatures\.train: unknown 'z'; expected one of name, x, y",
        ),
        (
            {"infer": "initialize"},
            r"signatures\.infer: 'initialize' takes too few inputs \(none\); name another signature",
        ),
        ({"embed": "initialize"}, r"signatures\.embed: 'initialize' takes too few inputs \(none\)"),
        (
            {"infer": "train_epoch"},
            r"signatures\.infer: 'train_epoch' takes several inputs \(x, y\), expected one; name another signature",
        ),
        ({"train": "eval"}, r"signatures\.train: 'eval' takes too few inputs \(x\)"),
    ):
        with pytest.raises(ModelError, match=message):
            TrainableModel.load(path, signatures=given)


def test_inference_with_several_inputs_is_named() -> None:
    graph = read_graph(generated("train_epoch").path.read_bytes(), "app")
    kept = {name: entry for name, entry in graph.signatures.items() if name in ("train_epoch", "compute_loss")}
    missing = find_roles(replace(graph, signatures=kept), "app").missing
    assert missing.endswith("in a file of another tool, inference must take one input, but 'compute_loss' takes x, y")


@pytest.mark.parametrize("head", ["hidden", [0, 1], [-4, "hidden/bias"], "a0"])
def test_groups_name_the_head_by_layer_or_number(head: Any) -> None:
    model = TrainableModel.load(generated("closed").path, groups={"head": head})
    expected = ["hidden/kernel"] if head == "a0" else ["hidden/kernel", "hidden/bias"]
    assert [p.name for p in model.parameters if p.group == "head"] == expected
    assert {p.group for p in model.parameters} == {"head", "body"}


def test_unknown_groups_are_refused() -> None:
    path = generated("closed").path
    with pytest.raises(
        ModelError, match=r"model\.groups\.head: no layer 'top'; expected a layer \(hidden, classifier\) or the"
    ):
        TrainableModel.load(path, groups={"head": "top"})
    with pytest.raises(ModelError, match=r"model\.groups: unknown group 'tail'; expected one of body, head, norm"):
        TrainableModel.load(path, groups={"tail": "hidden"})


def test_corrections_of_a_file_with_a_manifest_are_refused(softmax: TrainableModel, tmp_path: Path) -> None:
    path = tmp_path / "own.tflite"
    path.write_bytes(softmax.content)
    with pytest.raises(ModelError, match=r"has a manifest that defines signatures and groups; leave out model\.groups"):
        TrainableModel.load(path, groups={"head": 0})


def test_adapted_file_keeps_the_signatures_of_the_app() -> None:
    model = TrainableModel.load(generated("train_epoch").path)
    assert {"train_epoch", "predict", "get_parameters", "set_parameters"} <= model.signatures.keys()


VERDICTS = {
    "closed": "trains here",
    "load_embeds": "trains here",
    "refused_shape": "trains here",
    "not_a_number": "trains here once it has finite weights: hidden/kernel starts with NaN or infinity",
    "checkpoint_vector": "does not train here: 'train' contains Flex ops (FlexReluGrad) that LiteRT cannot run",
    "four_files_optimizer": "does not train here: inference only: it has no variables",
}


@pytest.mark.parametrize("name", VERDICTS)
def test_first_line_says_whether_a_file_trains(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = generated(name).path
    print_model(path)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{path}: {VERDICTS[name]}")
    assert any(line.startswith("strategies: ") and "fedavg" in line for line in lines) == lines[0].count(
        ": trains here"
    )
    if name == "refused_shape":
        assert any("'train' rejects the declared shape of 'y', [?, 4], but accepts [?]" in line for line in lines)


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("train_epoch", FedPer()),
        ("sparse_float", FedAvg()),
        ("load_embeds", KNNPer()),
        ("one_row", FedAvg()),
        ("counted", FedAvg()),
    ],
)
def test_fleet_trains_a_foreign_file_on_class_labels(name: str, strategy: Strategy, tmp_path: Path) -> None:
    model = TrainableModel.load(generated(name).path)
    data = federate(Dataset("made", *rows(240), classes=3), iid, 4, seed=0)
    Simulation(model, data, strategy, rounds=8, directory=tmp_path / "run").run()
    losses = [json.loads(line)["train_loss"] for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_command_runs_a_corrected_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("rows.npz", x=rows(120)[0], y=rows(120)[1])
    arguments = [
        *("run", "model=tflite", f"model.path={generated('train_epoch').path}", "data=npz", "data.path=rows.npz"),
        *(
            "+model.signatures.train={name:train_epoch,x:x,y:y,loss:l}",
            "+model.groups.head=[classifier]",
            "strategy=fedper",
        ),
        *("fleet.devices=4", "fleet.unseen=0", "run.rounds=2", "backend=serial", "hydra.run.dir=run"),
    ]
    assert main(arguments) == 0
    trained = TrainableModel.load(next(Path("run").glob("*.tflite")))
    assert [p.group for p in trained.parameters] == ["body", "body", "head", "head"]
    assert "train_epoch" in trained.signatures


def test_ops_are_named_in_full_on_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_model(generated("train_epoch").path)
    out = capsys.readouterr().out
    assert {"ASSIGN_VARIABLE", "BATCH_MATMUL", "VAR_HANDLE"} <= set(out.split())
    assert "…" not in out
