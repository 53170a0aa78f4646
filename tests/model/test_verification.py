"""LiteRT meets a file in a process of its own first: what it does there is an error here."""

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
from odt_sim.data import federate, iid
from odt_sim.data.dataset import Dataset
from odt_sim.errors import ModelError
from odt_sim.model import verification
from odt_sim.persistence.lock import LOCK
from odt_sim.strategies.fedavg import FedAvg


@pytest.fixture
def fresh(tmp_path, monkeypatch) -> Path:
    """The cache of a machine that has tried no file yet."""
    monkeypatch.setenv("ODT_SIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(verification, "_fine", set())
    return tmp_path / "cache" / "verified"


def without_an_input(model: Any) -> None:
    """Takes its first input from a product: a step, or an inference, then reads what is not there."""
    code = schema.BuiltinOperator.BATCH_MATMUL
    codes = [max(one.builtinCode, one.deprecatedBuiltinCode) for one in model.operatorCodes]
    products = (op for graph in model.subgraphs for op in graph.operators if codes[op.opcodeIndex] == code)
    product = next(products)
    product.inputs = np.array([-1, *product.inputs[1:]], np.int32)


@pytest.fixture
def crashing(edited, softmax, tmp_path) -> Path:
    """A file that any parser reads, and that crashes LiteRT."""
    path = tmp_path / "crashing.tflite"
    path.write_bytes(edited(softmax.content, without_an_input))
    return path


CRASH = (
    r"crashing\.tflite: LiteRT crashes when it loads or runs it \(SIG(SEGV|ABRT|BUS)\); it is damaged, copy or export"
)


def test_a_crash_in_native_code_is_an_error(fresh, crashing):
    TrainableModel.from_content(crashing.read_bytes())  # which runs nothing
    with pytest.raises(ModelError, match=CRASH):
        TrainableModel.load(crashing)
    assert not fresh.exists()


def test_the_commands_survive_such_a_file(fresh, crashing, capsys, monkeypatch):
    monkeypatch.chdir(crashing.parent)
    run = ["run", "model=tflite", f"model.path={crashing.name}", "backend=serial", "fleet.devices=4"]
    for arguments in (["inspect", crashing.name], run):
        assert main(arguments) == 1
        assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {crashing.name}: LiteRT crashes")


def test_a_simulation_survives_a_model_of_bytes(fresh, crashing, tmp_path):
    images = Dataset("images", np.zeros((40, 8, 8, 1), np.float32), np.arange(40, dtype=np.int32) % 10, classes=10)
    model = TrainableModel.from_content(crashing.read_bytes(), where="crashing.tflite")
    with pytest.raises(ModelError, match=CRASH):
        Simulation(model, federate(images, iid, 4, seed=0), FedAvg(), rounds=1, directory=tmp_path / "run").run()
    assert not [path for path in (tmp_path / "run").iterdir() if path.name != LOCK]


def test_an_endless_loop_is_ended(fresh, foreign, monkeypatch):
    monkeypatch.setattr(verification, "SECONDS", 2.0)
    with pytest.raises(
        ModelError, match=r"endless\.tflite: LiteRT took more than 2 s of the processor's time .* it is damaged, or"
    ):
        TrainableModel.load(foreign / "endless.tflite")


def test_a_tensor_that_no_machine_holds_is_refused(fresh, edited, softmax, tmp_path):
    path = tmp_path / "huge.tflite"
    path.write_bytes(edited(softmax.content, reshape("infer", "inputs", "x", [1 << 20, 1 << 10, 1 << 10, 1])))
    with pytest.raises(
        ModelError, match=r"huge\.tflite: needs more than \d+ GB of memory \(Unable to allocate 4.00 TiB"
    ):
        TrainableModel.load(path)


@pytest.mark.parametrize(
    ("ending", "message"),
    [
        (verification.Ending(None), "did not end within 6 minutes; see what keeps this machine busy"),
        (verification.Ending(-signal.SIGKILL), "for lack of memory; make memory free, or"),
        (
            verification.Ending(-signal.SIGABRT, "", "terminate called after 'std::bad_alloc'"),
            "for lack of memory; make",
        ),
    ],
)
def test_what_the_machine_lacks_is_not_told_as_damage(fresh, monkeypatch, ending, message):
    monkeypatch.setattr(verification, "tried", lambda *given: ending)
    with pytest.raises(ModelError, match=message) as raised:
        verification.verify(b"", "0", "good.tflite")
    assert "damaged" not in str(raised.value)


def test_what_litert_fails_at_tells_the_memory_it_had(edited, softmax, tmp_path):
    content = edited(softmax.content, reshape("infer", "inputs", "x", [8192, 8, 8, 1]))
    ending = verification.tried(content, "large.tflite", 60)
    assert ending.code == verification.REFUSED
    assert re.search(r"failed to prepare\.; it ran with \d+ GB of memory, export it again, or", ending.output)


def test_the_memory_needed_is_that_of_the_trial_alone(softmax):
    """Linux would count what the process has had that starts the trial."""
    mine = np.ones(40 << 20)  # 320 MiB
    needed = verification.memory_needed(softmax.content, "softmax.tflite")
    assert 20e6 < needed < 200e6 < mine.nbytes


CONFINED = """
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


def test_the_trial_may_neither_write_files_nor_take_all_memory(tmp_path):
    command = [sys.executable, "-c", CONFINED, str(tmp_path / "file")]
    child = subprocess.run(command, capture_output=True, text=True, check=True)
    assert child.stdout.splitlines() == ["no memory", "File too large"]


def test_a_file_is_tried_once(fresh, softmax, tmp_path, monkeypatch):
    path = tmp_path / "softmax.tflite"
    path.write_bytes(softmax.content)
    TrainableModel.load(path)
    [mark] = fresh.iterdir()
    assert mark.name.startswith(f"{softmax.fingerprint}.litert-")
    monkeypatch.setattr(verification, "tried", None)  # which a second trial would call
    path.rename(tmp_path / "renamed.tflite")
    TrainableModel.load(tmp_path / "renamed.tflite")
    path.write_bytes(softmax.content + b"\0")
    with pytest.raises(TypeError):
        TrainableModel.load(path)


@pytest.mark.parametrize("cache", ["a file", "x" * 300, "~nobody-of-this-name/cache"])
def test_where_there_is_no_cache_a_process_tries_a_file_once(fresh, softmax, tmp_path, monkeypatch, cache):
    (tmp_path / "a file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ODT_SIM_CACHE", cache)
    trials = []
    monkeypatch.setattr(verification, "tried", lambda *given: trials.append(given) or verification.Ending(0))
    for _ in range(2):
        verification.verify(softmax.content, softmax.fingerprint, "softmax")
    assert len(trials) == 1


def test_what_the_exporter_has_written_was_tried_there(softmax, monkeypatch):
    monkeypatch.setattr(verification, "tried", None)
    verification.verify(softmax.content, softmax.fingerprint, "softmax")


def test_a_trial_that_cannot_be_started_says_why(fresh, softmax, monkeypatch):
    ending = verification.Ending(1, "", "Traceback\nModuleNotFoundError: No module named 'numpy'")
    monkeypatch.setattr(verification, "tried", lambda *given: ending)
    with pytest.raises(
        ModelError, match=r"softmax: cannot be tried .* \(ModuleNotFoundError: .*\); see that Python can"
    ):
        verification.verify(b"", "0", "softmax")
