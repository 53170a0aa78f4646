"""LiteRT's interpreter and its compiled model behind one contract; `tests/flex` has TensorFlow's."""

import json
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from odt_sim import Simulation, TrainableModel
from odt_sim.device.batches import Batch
from odt_sim.device.engines import LITERT, RuntimeChoice
from odt_sim.device.engines.compiled import CompiledEngine
from odt_sim.device.engines.flex import find_python
from odt_sim.device.engines.interpreter import LARGE, InterpreterCall
from odt_sim.device.runtime import Runtime
from odt_sim.errors import ConfigurationError, ModelError
from odt_sim.model.editing.tree import packed, unpacked
from odt_sim.simulation.executors.serial import SerialBackend
from odt_sim.strategies import FedAvg
from odt_sim.testing import random_data

COMPILED = RuntimeChoice("compiled")


def test_compiled_model_trains_as_the_interpreter(momentum: TrainableModel) -> None:
    random = np.random.default_rng(0)
    runtimes = [Runtime(momentum, start) for start in (LITERT, COMPILED)]
    for _ in range(5):
        x, y = random.normal(size=(4, 6)).astype(np.float32), random.integers(0, 3, 4).astype(np.int32)
        [one], [other] = (runtime.train([Batch(x, y, np.ones(4, np.float32), 4)], [0.1]) for runtime in runtimes)
        assert one == pytest.approx(other, rel=1e-6)
    one, other = runtimes
    np.testing.assert_allclose(one.read().vector, other.read().vector, atol=1e-6)
    for a, b in zip(one.read_slots(), other.read_slots(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    other.write(other.initial)  # variables are shared between signatures
    np.testing.assert_array_equal(other.read().vector, one.initial.vector)


def test_compiled_outputs_are_copies(momentum: TrainableModel) -> None:
    engine = COMPILED(momentum.content, "momentum")
    before = engine.call("parameters")["a0"]
    kept = before.copy()
    engine.call("restore", **{f"a{i}": np.ones(p.shape, np.float32) for i, p in enumerate(momentum.parameters)})
    assert engine.call("parameters")["a0"].all()
    np.testing.assert_array_equal(before, kept)


def test_compiled_model_prints_nothing(momentum: TrainableModel, capfd: pytest.CaptureFixture[str]) -> None:
    engine = COMPILED(momentum.content, "momentum")
    for _ in range(3):
        engine.call("restore", **engine.call("parameters"))
    assert capfd.readouterr() == ("", "")


LAST_WORDS = """
import atexit, sys
from odt_sim.device.engines.compiled import CompiledEngine
atexit.register(print, "last words", file=sys.stderr)
CompiledEngine(open(sys.argv[1], "rb").read(), "momentum").call("parameters")
"""


def test_only_exit_handlers_print_after_a_compiled_model(momentum: TrainableModel, tmp_path: Path) -> None:
    path = tmp_path / "momentum.tflite"
    path.write_bytes(momentum.content)
    done = subprocess.run([sys.executable, "-c", LAST_WORDS, path], capture_output=True, text=True, check=True)
    assert done.stderr == "last words\n"


def test_compiled_model_runs_signatures_that_share_a_constant_output(momentum: TrainableModel) -> None:
    file = unpacked(momentum.content)
    restore = next(own for own in file.signatureDefs if own.signatureKey == b"restore")
    again = deepcopy(restore)
    again.signatureKey = b"restore_again"
    file.signatureDefs.append(again)
    engine = COMPILED(packed(file), "momentum")
    weights = engine.call("parameters")
    assert engine.call("restore_again", **weights) == engine.call("restore", **weights)


def test_compiled_model_takes_any_rows(any_rows: TrainableModel) -> None:
    one, other = (start(any_rows.content, "any") for start in (LITERT, COMPILED))
    for rows in (4, 1, 7, 4):
        x = np.random.default_rng(rows).normal(size=(rows, 6)).astype(np.float32)
        found, expected = (engine.call("infer", x=x)["logits"] for engine in (other, one))
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_interpreter_needs_only_calls_of_a_runner(any_rows: TrainableModel) -> None:
    """A release of LiteRT may construct its runner differently."""
    runner = Interpreter(model_content=any_rows.content).get_signature_runner("infer")
    plain = InterpreterCall(lambda **inputs: runner(**inputs))
    for rows in (4, 4, 2):
        x = np.random.default_rng(rows).normal(size=(rows, 6)).astype(np.float32)
        expected = LITERT(any_rows.content, "any").call("infer", x=x)["logits"]
        np.testing.assert_array_equal(plain.run({"x": x})["logits"], expected)


def test_interpreter_resizes_only_inputs_of_another_shape(any_rows: TrainableModel) -> None:
    """On ARM, LiteRT crashes if a scalar such as the learning rate is resized, even to its own shape."""
    runner = Interpreter(model_content=any_rows.content).get_signature_runner("train")
    call, native, resized = InterpreterCall(runner), runner._interpreter_wrapper, list[int]()

    class Recorded:
        def __getattr__(self, name: str) -> Any:
            return getattr(native, name)

        def ResizeInputTensor(self, tensor: int, *given: Any) -> None:  # noqa: N802
            resized.append(tensor)
            native.ResizeInputTensor(tensor, *given)

    call._native = Recorded()
    for rows in (4, 4, 2):
        inputs = {name: np.zeros(each["shape"], each["dtype"]) for name, each in runner.get_input_details().items()}
        of_rows = {
            name: np.zeros((rows, *array.shape[1:]), array.dtype) for name, array in inputs.items() if array.ndim
        }
        call.run(inputs | of_rows)
    numbers = {runner._inputs[name] for name, array in inputs.items() if not array.ndim}
    assert numbers
    assert len(resized) == 2 * len(of_rows)
    assert not numbers & set(resized)


def test_interpreter_gives_a_fresh_one_s_outputs_after_calls_of_any_shape(any_rows: TrainableModel) -> None:
    """Failed calls in between, and the same shape twice."""
    engine, random = LITERT(any_rows.content, "any"), np.random.default_rng(0)
    kept = []
    for rows in (4, 4, 1, 7, 7, 4):
        x = random.normal(size=(rows, 6)).astype(np.float32)
        found = engine.call("infer", x=x)["logits"]
        np.testing.assert_array_equal(found, LITERT(any_rows.content, "fresh").call("infer", x=x)["logits"])
        kept.append((found, found.copy()))
        for wrong in (x.astype(np.int64), x[:, :5]):
            with pytest.raises(ModelError, match="'infer' failed"):
                engine.call("infer", x=wrong)
    for found, copied in kept:
        np.testing.assert_array_equal(found, copied)


def test_interpreter_passes_inputs_of_any_size_as_a_fresh_one_does(any_rows: TrainableModel) -> None:
    """LiteRT copies small inputs, numpy copies large ones; both may be read-only or transposed."""
    engine, random = LITERT(any_rows.content, "any"), np.random.default_rng(0)
    for rows in (4, LARGE // 24, LARGE // 12):  # a row has 24 bytes
        for _ in range(3):
            x = random.normal(size=(6, rows)).astype(np.float32).T
            x.flags.writeable = False
            fresh = LITERT(any_rows.content, "fresh").call("infer", x=np.ascontiguousarray(x))
            np.testing.assert_array_equal(engine.call("infer", x=x)["logits"], fresh["logits"])
        for wrong in (x.astype(np.int32), x.astype(np.float64)):
            engine.call("infer", x=x)
            with pytest.raises(ModelError, match="'infer' failed"):
                engine.call("infer", x=wrong)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": np.zeros((4, 6), np.int64)}, "input 'x' is int64, expected float32"),
        ({"z": np.zeros((4, 6), np.float32)}, "signature 'infer' takes x; found z"),
    ],
)
def test_wrong_input_of_a_compiled_model_is_one_line(
    momentum: TrainableModel, inputs: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        COMPILED(momentum.content, "momentum").call("infer", **inputs)


def test_compiled_model_refuses_what_it_cannot_load() -> None:
    with pytest.raises(ModelError, match=r"broken.tflite: LiteRT's compiled model cannot load it: .+") as caught:
        CompiledEngine(b"TFL3" * 9, "broken.tflite")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "tpu"}, "backend.runtime: expected one of litert, compiled, flex, found 'tpu'"),
        ({"python": "/usr/bin/python3"}, "backend.runtime_python: expected null with backend.runtime=litert"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        RuntimeChoice(**settings)


def test_missing_flex_environment_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ODT_SIM_FLEX_PYTHON", raising=False)
    with pytest.raises(ConfigurationError, match=r"create one: python3\.11 -m venv flex"):
        find_python()
    monkeypatch.setenv("ODT_SIM_FLEX_PYTHON", str(tmp_path))
    with pytest.raises(ConfigurationError, match=f"{tmp_path} is not a program"):
        find_python()


def test_a_python_without_tensorflow_is_refused(tmp_path: Path, momentum: TrainableModel) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho no TensorFlow here >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(ConfigurationError, match=r"has no usable TensorFlow: its process ended .no TensorFlow here"):
        RuntimeChoice("flex", str(program))(momentum.content, "momentum")


def test_run_in_the_compiled_model_has_the_same_losses(momentum: TrainableModel, tmp_path: Path) -> None:
    data, rounds = random_data(momentum, [9, 4, 6]), {}
    for name in ("litert", "compiled"):
        directory, backend = tmp_path / name, SerialBackend(name)
        Simulation(momentum, data, FedAvg(), rounds=2, directory=directory, backend=backend).run()
        rounds[name] = [
            json.loads(line)["train_loss"] for line in (directory / "rounds.jsonl").read_text().splitlines()
        ]
    assert rounds["litert"] == pytest.approx(rounds["compiled"], rel=1e-5)
