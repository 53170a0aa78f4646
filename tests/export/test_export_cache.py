"""Export of configured models: cached, once, in a subprocess."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from odt_sim.errors import ConfigurationError, ExportError, ExportWarning
from odt_sim.export import cache
from odt_sim.export.__main__ import UNUSED, _build
from odt_sim.export.cache import exported, run
from odt_sim.model.trainable import TrainableModel

BUILD = """
from pathlib import Path

import keras

def tiny(width):
    with Path(__file__).with_name("builds").open("a") as file:
        file.write("one more ")
    return keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(width)])
"""
SHIPPED = {
    "name": "shipped",
    "build": {"_target_": "odt_sim.export.zoo.softmax_regression", "input_shape": [2], "classes": 2},
    "loss": "sparse_categorical_crossentropy",
    "optimizer": {"name": "SGD"},
    "batch_size": 4,
    "seed": 0,
}
ASK = """
import json, sys
from odt_sim.export.cache import exported
print(exported(json.loads(sys.argv[1])))
"""


@pytest.fixture
def spec(tmp_path: Path) -> dict[str, Any]:
    """The configuration of a model with a user's build function."""
    (tmp_path / "tiny_models.py").write_text(BUILD)
    return {
        "name": "tiny",
        "build": {"_target_": "tiny_models.tiny", "width": 2},
        "loss": "mean_squared_error",
        "optimizer": {"name": "SGD", "momentum": 0.5},
        "batch_size": 4,
        "seed": 3,
        "sys_path": [str(tmp_path)],
    }


@pytest.fixture
def own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Export in a new process, as outside of the tests, and not in a fork."""
    monkeypatch.setattr(cache, "run", run)


@pytest.mark.slow
def test_concurrent_processes_share_one_export(spec: dict[str, Any], tmp_path: Path, monkeypatch: Any) -> None:
    """As with two runs that are started together on a new machine."""
    monkeypatch.setenv("ODT_SIM_CACHE", str(tmp_path / "cache"))
    command = [sys.executable, "-c", ASK, json.dumps(spec)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = {child.communicate()[0].strip() for child in children}
    assert [child.returncode for child in children] == [0, 0, 0]
    assert answers == {str(exported(spec))}
    assert (tmp_path / "builds").read_text() == "one more "
    [first] = (tmp_path / "cache" / "models").glob("*.tflite")
    model = TrainableModel.load(first)
    assert (model.name, model.batch_size, model.layout.size) == ("tiny", 4, 8)
    assert "optimizer_state" in model.signatures
    kernel = Interpreter(str(first)).get_signature_runner("parameters")()["a0"]
    import keras

    keras.utils.set_random_seed(3)
    np.testing.assert_array_equal(kernel, keras.initializers.GlorotUniform()((3, 2)))


@pytest.mark.slow
@pytest.mark.usefixtures("own_process")
def test_build_function_may_import_what_is_hidden_from_keras(spec: dict[str, Any], tmp_path: Path) -> None:
    imports = "".join(f"import {name}\n" for name in ("matplotlib.pyplot", "sklearn.base"))
    assert {"matplotlib", "sklearn"} <= {*UNUSED}
    (tmp_path / "tiny_models.py").write_text(imports + BUILD)
    assert TrainableModel.load(exported(spec, tmp_path / "cache")).name == "tiny"


@pytest.mark.parametrize("inside", [False, True])
def test_pytorch_is_seeded_where_the_function_imports_it_too(
    inside: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text("from random import Random\nrandom = Random()\nmanual_seed = random.seed\n")
    line = "import torch\n"
    body = f"{'' if inside else line}def drawn():\n    {line if inside else ''}\n    return torch.random.random()\n"
    (tmp_path / f"drawing_{inside}.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    spec = {"build": {"_target_": f"drawing_{inside}.drawn"}, "seed": 7}
    for _ in range(2):
        monkeypatch.delitem(sys.modules, "torch", raising=False)
        monkeypatch.delitem(sys.modules, f"drawing_{inside}", raising=False)
        assert _build(spec) == random.Random(7).random()
    monkeypatch.delitem(sys.modules, "torch")


def test_key_covers_the_specification_and_the_build_source(spec: dict[str, Any], tmp_path: Path) -> None:
    keys = {cache._key(spec), cache._key({**spec, "seed": 4}), cache._key({**spec, "batch_size": 8})}
    (tmp_path / "tiny_models.py").write_text(BUILD.replace("(3,)", "(4,)"))
    assert len(keys | {cache._key(spec)}) == 4


def test_key_covers_the_files_named_by_build_arguments(spec: dict[str, Any], tmp_path: Path) -> None:
    file, folder = tmp_path / "weights.h5", tmp_path / "saved"
    folder.mkdir()
    for changed in (file, folder / "saved_model.pb", folder / "variables"):
        named = {**spec, "build": {**spec["build"], "source": str(file if changed == file else folder)}}
        keys = [cache._key(named)]
        for content in ("one", "two"):
            changed.write_text(content)
            keys.append(cache._key(named))
        assert len(set(keys)) == 3


@pytest.mark.slow
def test_options_of_the_specification_reach_the_export(tmp_path: Path) -> None:
    options = {"class_weight": {0: 1.0, 1: 3.0}, "train_groups": ["head"]}
    path = exported({**SHIPPED, **options, "embed": True, "gradient_offset": True}, tmp_path / "cache")
    signatures = TrainableModel.load(path).signatures
    assert {"train_head", "embed", "head_train", "head_infer", "set_gradient_offset"} <= set(signatures)
    batch = {"x": np.ones((4, 2), np.float32), "sample_weight": np.ones(4, np.float32), "mu": np.float32(0)}
    interpreter = Interpreter(str(path), num_threads=1)
    logits = interpreter.get_signature_runner("infer")(x=batch["x"])["logits"][0]
    train = interpreter.get_signature_runner("train")
    loss = train(**batch, y=np.ones(4, np.int32), learning_rate=np.float32(0))["loss"]
    assert float(loss) == pytest.approx(3 * float(np.log(np.exp(logits).sum()) - logits[1]), rel=1e-5)


@pytest.mark.slow
def test_build_error_is_reported_in_one_line(spec: dict[str, Any], tmp_path: Path) -> None:
    failing = {**spec, "build": {"_target_": "tiny_models.tiny", "width": -1}}
    with pytest.raises(ExportError, match=r"model\.build: tiny_models\.tiny failed: ValueError") as error:
        exported(failing, tmp_path / "cache")
    assert "\n" not in str(error.value)
    assert not list((tmp_path / "cache").glob("*.tflite"))


DYING = """
import os, signal, sys

def crash():
    print("the GPU fell off", file=sys.stderr)
    print("2026-11-22 10:00:00.000000: I tensorflow/core/x.cc:1] This is a log line", file=sys.stderr)
    print("I0000 00:00:1795370585.320910   15396 port.cc:153] oneDNN custom operations are on", file=sys.stderr)
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGSEGV)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("own_process")
def test_crash_of_the_export_names_signal_and_last_line(spec: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "dying_models.py").write_text(DYING)
    crashing = {**spec, "build": {"_target_": "dying_models.crash"}}
    message = r"^model 'tiny': the export process crashed with SIGSEGV after printing 'the GPU fell off'; call"
    with pytest.raises(ExportError, match=message):
        exported(crashing, tmp_path / "cache")
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("sys.exit", r"^model\.build: sys\.exit called sys\.exit\(None\); return a Keras model"),
        ("os.gone", r"^model\.build\._target_: os has no 'gone'; check the name"),
    ],
)
def test_unusable_build_function_is_reported(target: str, message: str) -> None:
    with pytest.raises(ExportError, match=message):
        _build({"build": {"_target_": target}, "seed": 0})


@pytest.mark.parametrize(
    ("code", "errors", "message"),
    [
        (-9, "", "was killed by SIGKILL; free memory, or use a smaller model.batch_size"),
        (-6, "F0000 00:00:1 1 x.cc:1] Check failed\n", "crashed with SIGABRT after printing 'F0000 00:00:1"),
        (7, "INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\n", "ended with exit code 7; call"),
    ],
)
def test_failure_names_the_signal_or_the_exit_code(code: int, errors: str, message: str) -> None:
    error = cache._failure("tiny", code, errors, "call odt_sim.export.export_model in Python")
    assert str(error).startswith(f"model 'tiny': the export process {message}")
    assert error.transient


@pytest.mark.slow
@pytest.mark.parametrize("damage", [b"", b"TFL3", None])
def test_damaged_cached_export_is_exported_again(damage: bytes | None, tmp_path: Path) -> None:
    path = exported(SHIPPED, tmp_path)
    whole = path.read_bytes()
    if damage is None:
        path.with_suffix(".sha256").unlink()
    path.write_bytes(whole[:1000] if damage is None else damage)
    assert exported(SHIPPED, tmp_path) == path
    assert path.read_bytes() == whole


def test_warnings_of_an_export_are_given_each_time(spec: dict[str, Any], tmp_path: Path) -> None:
    source = (tmp_path / "tiny_models.py").read_text()
    warning = "import warnings; from odt_sim.errors import ExportWarning; warnings.warn('mine', ExportWarning)"
    (tmp_path / "tiny_models.py").write_text(source.replace("    return", f"    {warning}\n    return"))
    for _ in range(2):
        with pytest.warns(ExportWarning, match="^mine$"):
            exported(spec, tmp_path / "cache")
    assert (tmp_path / "builds").read_text() == "one more "


def test_batch_larger_than_the_memory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"^batch_size: a step needs at least \d+ GB of memory, found \d+ GB; use"):
        exported({**SHIPPED, "batch_size": 10**9}, tmp_path)
    assert not list(tmp_path.glob("*.tflite"))


@pytest.mark.usefixtures("own_process")
def test_missing_tensorflow_names_the_pip_command(spec: dict[str, Any], tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "keras.py").write_text("raise ModuleNotFoundError(\"No module named 'tensorflow'\", name='tensorflow')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ExportError, match=r"tensorflow, which is not installed; run: pip install 'odt_sim\[export\]'"):
        exported(spec, tmp_path / "cache")


def test_missing_setting_is_named(spec: dict[str, Any]) -> None:
    del spec["seed"]
    with pytest.raises(ConfigurationError, match=r"model: missing seed"):
        exported(spec)


def test_unwritable_cache_is_an_error(spec: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place, reason in (("file", "File exists"), ("x" * 300, "File name too long")):
        message = rf"{place}: cannot write the cache \({reason}\); set ODT_SIM_CACHE to a writable directory$"
        with pytest.raises(ExportError, match=message):
            exported(spec, tmp_path / place)


def test_cache_imports_no_tensorflow() -> None:
    code = "import sys, odt_sim.export, odt_sim.export.cache; sys.exit('tensorflow' in sys.modules or 'keras' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


OWN = """
import keras
import numpy as np
from keras import layers, ops

class Own(keras.Model):
    def __init__(self):
        super().__init__(name="own")
        self.dense = layers.Dense(3)

    def call(self, x):
        return self.dense(x)

def build():
    return Own(), (np.zeros((1, 2)), np.zeros((1, 3)))

def compiled():
    model = keras.Sequential([layers.Input((2,)), layers.Dense(1, activation="sigmoid")])
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    return model

def margin(y, output, least=1.0):
    return ops.sum(ops.relu(least - y * output), -1)
"""


@pytest.mark.slow
def test_own_class_with_an_own_loss_and_compiled_model_are_configured(tmp_path: Path) -> None:
    (tmp_path / "own_models.py").write_text(OWN)
    base = {"batch_size": 4, "seed": 0, "sys_path": [str(tmp_path)]}
    own = {
        "name": "own",
        "build": {"_target_": "own_models.build"},
        "loss": {"name": "own_models.margin", "least": 2.0},
    }
    model = TrainableModel.load(exported({**base, **own, "optimizer": {"name": "SGD"}}, tmp_path))
    assert (model.loss, model.manifest.outputs[0].task) == (None, "other")
    assert "loss" in model.signatures
    taken = {"name": "taken", "build": {"_target_": "own_models.compiled"}, "loss": None, "optimizer": None}
    compiled = TrainableModel.load(exported({**base, **taken}, tmp_path)).manifest
    assert (compiled.loss, compiled.from_logits, compiled.optimizer["name"]) == ("binary_crossentropy", False, "Adam")
    assert compiled.outputs[0].metrics == ("accuracy",)
