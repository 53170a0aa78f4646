"""Verification of files in a subprocess: crashes, hangs and lack of memory become errors."""

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from edits import reshape

from odt_sim import Simulation, TrainableModel
from odt_sim.cli.main import main
from odt_sim.data import Dataset, federate, iid
from odt_sim.errors import ModelError
from odt_sim.model.reading import verification
from odt_sim.model.reading.verification import run
from odt_sim.strategies import FedAvg


@pytest.fixture(autouse=True)
def own_process(monkeypatch) -> None:
    """Verify in a new process, as outside of the tests, and not in a fork."""
    monkeypatch.setattr(verification, "run", run)


@pytest.fixture
def empty_cache(tmp_path, monkeypatch) -> Path:
    """The folder of verification marks on a machine that has not verified a file yet."""
    monkeypatch.setenv("ODT_SIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(verification, "_verified", set())
    return tmp_path / "cache" / "verified"


def drop_matmul_input(model: Any) -> None:
    """Remove the first input of a product, which LiteRT then reads out of bounds."""
    code = schema.BuiltinOperator.BATCH_MATMUL
    codes = [max(one.builtinCode, one.deprecatedBuiltinCode) for one in model.operatorCodes]
    products = (op for graph in model.subgraphs for op in graph.operators if codes[op.opcodeIndex] == code)
    product = next(products)
    product.inputs = np.array([-1, *product.inputs[1:]], np.int32)


@pytest.fixture
def crashing(edited, softmax, tmp_path) -> Path:
    """A parsable file that crashes LiteRT."""
    path = tmp_path / "crashing.tflite"
    path.write_bytes(edited(softmax.content, drop_matmul_input))
    return path


def test_native_crash_is_an_error(empty_cache, crashing):
    TrainableModel.from_content(crashing.read_bytes())  # runs nothing
    message = (
        r"crashing\.tflite: LiteRT crashes when it loads or runs it \(SIG(SEGV|ABRT|BUS)\); it is damaged, copy or"
    )
    with pytest.raises(ModelError, match=message):
        TrainableModel.load(crashing)
    assert not empty_cache.exists()


@pytest.mark.parametrize(
    "arguments", [["inspect"], ["run", "model=tflite", "backend=serial", "fleet.devices=8"]], ids=["inspect", "run"]
)
def test_commands_survive_a_crashing_file(empty_cache, crashing, capsys, monkeypatch, arguments):
    monkeypatch.chdir(crashing.parent)
    arguments = [*arguments, crashing.name if arguments == ["inspect"] else f"model.path={crashing.name}"]
    assert main(arguments) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {crashing.name}: LiteRT crashes")


def test_simulation_survives_a_crashing_model(empty_cache, crashing, tmp_path):
    images = Dataset("images", np.zeros((12, 8, 8, 1), np.float32), np.zeros(12, np.int32), classes=10)
    model = TrainableModel.from_content(crashing.read_bytes(), where="crashing.tflite")
    with pytest.raises(ModelError, match="LiteRT crashes"):
        Simulation(model, federate(images, iid, 2, seed=0), FedAvg(), rounds=1, directory=tmp_path / "run").run()


@pytest.mark.slow
def test_endless_loop_is_killed(empty_cache, foreign, monkeypatch):
    monkeypatch.setattr(verification, "SECONDS", 2.0)
    with pytest.raises(
        ModelError, match=r"endless\.tflite: LiteRT needed more than 2 s of CPU time .* it is damaged, or"
    ):
        TrainableModel.load(foreign / "endless.tflite")


@pytest.mark.slow
def test_too_large_tensor_is_refused(empty_cache, edited, softmax, tmp_path):
    path = tmp_path / "huge.tflite"
    path.write_bytes(edited(softmax.content, reshape("infer", "inputs", "x", [1 << 20, 1 << 10, 1 << 10, 1])))
    with pytest.raises(
        ModelError, match=r"huge\.tflite: needs more than \d+ GB of memory \(Unable to allocate 4.00 TiB"
    ):
        TrainableModel.load(path)


@pytest.mark.parametrize(
    ("ending", "message"),
    [
        (verification.Ending(None), "did not finish within 6 minutes; check what else is running on this machine"),
        (verification.Ending(-signal.SIGKILL), "because memory ran out; free memory, or"),
        (verification.Ending(-signal.SIGABRT, "", "after 'std::bad_alloc'"), "because memory ran out; free memory"),
        (
            verification.Ending(1, "", "Traceback\nModuleNotFoundError: No module named 'numpy'"),
            r"the verification process failed \(ModuleNotFoundError: .*\); check that Python can",
        ),
    ],
)
def test_failures_of_the_machine_do_not_blame_the_file(empty_cache, monkeypatch, ending, message):
    monkeypatch.setattr(verification, "run", lambda *arguments: ending)
    with pytest.raises(ModelError, match=message) as raised:
        verification.verify(b"", "0", "good.tflite")
    assert "damaged" not in str(raised.value)


def test_failed_invocation_names_the_memory_limit(edited, softmax):
    content = edited(softmax.content, reshape("infer", "inputs", "x", [8192, 8, 8, 1]))
    ending = verification.run(content, "large.tflite", 60)
    assert ending.code == verification.FAILED
    assert re.search(r"failed to prepare; it ran with \d+ GB of memory; export it again, or", ending.output)


@pytest.mark.slow
def test_memory_needed_excludes_the_parent_process(softmax):
    parent = np.ones(40 << 20)  # 320 MiB
    assert 20e6 < verification.memory_needed(softmax.content, "softmax.tflite") < 200e6 < parent.nbytes


LIMITED = """
import sys, numpy as np
from odt_sim.device.verification_process import limit_resources
memory = limit_resources(10)
try:
    np.empty(memory, np.uint8)
except MemoryError:
    print("no memory")
try:
    open(sys.argv[1], "wb", buffering=0).write(b"x")
except OSError as error:
    print(error.strerror)
"""


def test_subprocess_cannot_write_files_or_exhaust_memory(tmp_path):
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "file")]
    child = subprocess.run(command, capture_output=True, text=True, check=True)
    assert child.stdout.splitlines() == ["no memory", "File too large"]


def test_each_content_is_verified_once(empty_cache, softmax, tmp_path, monkeypatch):
    path = tmp_path / "softmax.tflite"
    path.write_bytes(softmax.content)
    TrainableModel.load(path)
    [mark] = empty_cache.iterdir()
    assert mark.name.startswith(f"{softmax.fingerprint}.litert-")
    monkeypatch.setattr(verification, "run", None)  # a second verification raises TypeError
    path.rename(tmp_path / "renamed.tflite")
    TrainableModel.load(tmp_path / "renamed.tflite")
    path.write_bytes(softmax.content + b"\0")
    with pytest.raises(TypeError):
        TrainableModel.load(path)


@pytest.mark.parametrize("cache", ["a file", "x" * 300, "~nobody-of-this-name/cache"])
def test_without_cache_a_process_verifies_a_file_once(empty_cache, softmax, tmp_path, monkeypatch, cache):
    (tmp_path / "a file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ODT_SIM_CACHE", cache)
    runs = []
    monkeypatch.setattr(verification, "run", lambda *arguments: runs.append(arguments) or verification.Ending(0))
    for _ in range(2):
        verification.verify(softmax.content, softmax.fingerprint, "softmax")
    assert len(runs) == 1


def test_exported_files_are_verified_by_the_exporter(softmax, monkeypatch):
    monkeypatch.setattr(verification, "run", None)
    verification.verify(softmax.content, softmax.fingerprint, "softmax")
