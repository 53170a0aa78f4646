"""Four files without signatures, joined into one, train like the separate files on real LiteRT."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray

from dialects import generated
from odt_sim import Device, TrainableModel
from odt_sim.cli.commands.inspect import print_model
from odt_sim.cli.main import main
from odt_sim.doctor.diagnosis import diagnose
from odt_sim.errors import ModelError
from odt_sim.model.foreign.joining import join
from odt_sim.model.reading.graph_reader import read_graph

RATE = np.float32(0.1)
ROLES = ("bottleneck", "train_head", "optimizer", "initialize")


@pytest.fixture(scope="module")
def files() -> dict[str, Path]:
    """Return the four files by role."""
    return {role: generated(f"four_files_{role}").path for role in ROLES}


@pytest.fixture(scope="module")
def joined(files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the joined file, by the command."""
    path = tmp_path_factory.mktemp("join") / "joined.tflite"
    assert main(["join", str(path), *(f"{role}={file}" for role, file in files.items())]) == 0
    return path


class ByHand:
    """One of the files, called as by an app; outputs are in the alphabetical order of the author's names."""

    def __init__(self, role: str) -> None:
        content = generated(f"four_files_{role}").content
        self._interpreter = Interpreter(model_content=content, num_threads=1)
        self._interpreter.allocate_tensors()
        subgraph = read_graph(content, role).subgraphs[0]
        self._tensors = sorted(subgraph.outputs, key=lambda index: subgraph.tensors[index].name)

    def __call__(self, **inputs: Any) -> list[NDArray[Any]]:
        for detail in self._interpreter.get_input_details():
            name = re.sub(r"^serving_default_|:\d+$", "", detail["name"])
            self._interpreter.set_tensor(detail["index"], inputs[name])
        self._interpreter.invoke()
        return [self._interpreter.get_tensor(index) for index in self._tensors]


def batch(seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    random = np.random.default_rng(seed)
    return random.normal(size=(20, 6)).astype(np.float32), np.eye(3, dtype=np.float32)[random.integers(0, 3, 20)]


def test_steps_equal_those_of_the_four_files(joined: Path) -> None:
    bottleneck, train_head, optimizer = (ByHand(role) for role in ROLES[:3])
    bias, kernel = ByHand("initialize")()
    call = Interpreter(str(joined), num_threads=1).get_signature_runner
    np.testing.assert_array_equal(call("parameters")()["a1"], kernel)
    for seed in range(5):
        x, y = batch(seed)
        [features] = bottleneck(x=x)
        logits = features @ kernel + bias
        np.testing.assert_allclose(call("infer")(x=x)["output"], logits, rtol=0, atol=1e-6)
        d_bias, d_kernel, loss = train_head(bottleneck=features, y=y, kernel=kernel, bias=bias)
        bias, kernel = optimizer(kernel=kernel, bias=bias, d_kernel=d_kernel, d_bias=d_bias, rate=RATE)
        found = call("train")(x=x, y=y, learning_rate=RATE)["loss"]
        assert float(found) == pytest.approx(float(loss), abs=1e-6)
        weights = call("parameters")()
        np.testing.assert_allclose(weights["a0"], bias, rtol=0, atol=1e-6)
        np.testing.assert_allclose(weights["a1"], kernel, rtol=0, atol=1e-6)


def test_optimizer_with_a_state_of_its_own(files: dict[str, Path], tmp_path: Path) -> None:
    """Momentum with a constant rate: the weights start at zero, and the state persists from step to step."""
    momentum = generated("four_files_momentum").path
    path = tmp_path / "momentum.tflite"
    path.write_bytes(join(files["bottleneck"], files["train_head"], momentum))
    assert [slot.shape for slot in TrainableModel.load(path).slots] == [(5, 3), (3,)]
    call = Interpreter(str(path), num_threads=1).get_signature_runner
    bottleneck, train_head, optimizer = (ByHand(role) for role in ("bottleneck", "train_head", "momentum"))
    bias, kernel = m_bias, m_kernel = np.zeros(3, np.float32), np.zeros((5, 3), np.float32)
    for seed in range(5):
        x, y = batch(seed)
        d_bias, d_kernel, loss = train_head(bottleneck=bottleneck(x=x)[0], y=y, kernel=kernel, bias=bias)
        new = optimizer(kernel=kernel, bias=bias, d_kernel=d_kernel, d_bias=d_bias, m_kernel=m_kernel, m_bias=m_bias)
        bias, kernel, m_bias, m_kernel = new
        assert float(call("train")(x=x, y=y)["loss"]) == pytest.approx(float(loss), abs=1e-6)
        weights, state = call("parameters")(), call("optimizer_state")()
        np.testing.assert_allclose(weights["a1"], kernel, rtol=0, atol=1e-6)
        np.testing.assert_allclose(state["s0"], m_kernel, rtol=0, atol=1e-6)


def test_joined_file_trains_on_a_device(joined: Path) -> None:
    x, y = (np.concatenate(parts) for parts in zip(*map(batch, range(3)), strict=True))
    y = np.eye(3, dtype=np.float32)[np.abs(x[:, :3]).argmax(axis=1)]
    model = TrainableModel.load(joined)
    assert [p.name for p in model.parameters] == ["head/bias", "head/kernel"]
    assert {p.group for p in model.parameters} == {"head"}
    assert model.loss == "categorical_crossentropy"
    device = Device(model, (x, y), test=(x, y))
    before = device.evaluate("test")["loss"]
    device.train(epochs=20, learning_rate=0.1)
    assert device.evaluate("test")["loss"] < before


def test_inspect_and_doctor_say_that_it_trains(joined: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_model(joined)
    assert capsys.readouterr().out.startswith(f"{joined}: trains here")
    diagnosis = diagnose(joined)
    assert {finding.kind.id for finding in diagnosis.findings} == {"D108"}
    assert not diagnosis.prevented


def test_single_file_names_the_command(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    print_model(files["optimizer"])
    assert "join them: odt-sim join" in capsys.readouterr().out.splitlines()[0]


def test_output_is_not_overwritten(joined: Path, files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    content = joined.read_bytes()
    assert main(["join", str(joined), *(f"{role}={file}" for role, file in files.items())]) == 1
    assert capsys.readouterr().err == f"error: {joined}: already exists; choose another name, or remove it first\n"
    assert joined.read_bytes() == content


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"bottleneck": "initialize"},
            "expected a bottleneck with one input and one output, found 0 inputs and 2 outputs",
        ),
        ({"train_head": "optimizer"}, r"expected one float32\[20, 5\] input, as .*bottleneck.tflite returns it; found"),
        ({"optimizer": "train_head"}, r"expected one weight float32\[3\] and its gradient, found bias float32\[3\]"),
        (
            {"initialize": "bottleneck"},
            r"its weights are float32\[3\], float32\[5, 3\], but 'initialize' returns float32\[20",
        ),
        ({"bottleneck": "nowhere"}, "cannot read the model"),
    ],
)
def test_files_that_do_not_chain_are_refused(files: dict[str, Path], changed: dict[str, str], message: str) -> None:
    given = {role: files.get(changed.get(role, role), Path("nowhere.tflite")) for role in ROLES}
    with pytest.raises(ModelError, match=message):
        join(**given)


def test_file_with_variables_is_refused(files: dict[str, Path]) -> None:
    with pytest.raises(ModelError, match="expected a bottleneck with a single function and no variables"):
        join(**{**files, "bottleneck": generated("numbered").path})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["nonsense"],
            "expected each of bottleneck, train_head, optimizer, initialize once, as ROLE=FILE; found 'nonsense'",
        ),
        (["bottleneck=a.tflite"], "no train_head; add train_head=FILE"),
    ],
)
def test_wrong_arguments(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["join", str(tmp_path / "out.tflite"), *arguments]) == 1
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
