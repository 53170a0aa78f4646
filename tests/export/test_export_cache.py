"""Models of the configuration: exported once, in a process of their own."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from ai_edge_litert.interpreter import Interpreter

from odt_sim.errors import ConfigurationError, ExportError
from odt_sim.export import cache
from odt_sim.export.cache import exported
from odt_sim.model.trainable import TrainableModel

MODELS = Path(__file__).parents[2] / "conf" / "model"
SIZES = {
    "character_lstm": 24_528,
    "digits_cnn": 13_706,
    "digits_mlp": 4_810,
    "har_cnn": 12_166,
    "mnist_cnn": 56_714,
    "mobilenet": 221_114,
    "resnet8": 78_714,
    "softmax": 650,
    "transformer_encoder": 50_244,
}
SHORTER = {"character_lstm": {"length": 8}}  # each position costs export time, and no parameters
BUILD = """
import keras

def tiny(width):
    return keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(width)])
"""


@pytest.fixture
def spec(tmp_path: Path) -> dict[str, Any]:
    """The configuration of a model whose build function is the user's own."""
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


def test_processes_that_ask_at_once_share_one_export(spec: dict[str, Any], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("ODT_SIM_CACHE", str(tmp_path / "cache"))
    runs = []
    run = cache._export
    monkeypatch.setattr(cache, "_export", lambda *arguments: (runs.append(1), run(*arguments)))
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(exported, [spec, spec])
    assert first == second == exported(spec)
    assert len(runs) == 1
    assert first.parent == tmp_path / "cache" / "models"
    model = TrainableModel.load(first)
    assert (model.name, model.batch_size, model.layout.size) == ("tiny", 4, 8)
    assert "optimizer_state" in model.signatures
    kernel = Interpreter(str(first)).get_signature_runner("parameters")()["a0"]
    import keras

    keras.utils.set_random_seed(3)
    np.testing.assert_array_equal(kernel, keras.initializers.GlorotUniform()((3, 2)))


def test_the_key_covers_the_specification_and_the_build_functions_source(spec: dict[str, Any], tmp_path: Path) -> None:
    keys = {cache._key(spec), cache._key({**spec, "seed": 4}), cache._key({**spec, "batch_size": 8})}
    (tmp_path / "tiny_models.py").write_text(BUILD.replace("(3,)", "(4,)"))
    assert len(keys | {cache._key(spec)}) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"build": {"_target_": "tiny_models.gone"}}, r"model\.build: tiny_models\.gone failed: .*gone"),
        (
            {"build": {"_target_": "tiny_models.tiny", "width": -1}},
            r"model\.build: tiny_models\.tiny failed: ValueError",
        ),
        ({"loss": "hinge"}, r"^loss: expected .*found 'hinge'"),
    ],
)
def test_the_childs_error_is_the_error(
    change: dict[str, Any], message: str, spec: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=message) as error:
        exported({**spec, **change}, tmp_path / "cache")
    assert "\n" not in str(error.value)
    assert not list((tmp_path / "cache").glob("*.tflite"))


def test_without_tensorflow_the_error_says_what_to_install(
    spec: dict[str, Any], tmp_path: Path, monkeypatch: Any
) -> None:
    (tmp_path / "keras.py").write_text("raise ModuleNotFoundError(\"No module named 'tensorflow'\", name='tensorflow')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ExportError, match=r"tensorflow, which is not installed; run: pip install 'odt_sim\[export\]'"):
        exported(spec, tmp_path / "cache")


def test_a_missing_setting_is_named(spec: dict[str, Any]) -> None:
    del spec["seed"]
    with pytest.raises(ConfigurationError, match=r"model: missing seed"):
        exported(spec)


def test_a_cache_that_cannot_be_written_is_an_error(spec: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match=r"cannot write the cache .*set ODT_SIM_CACHE"):
        exported(spec, tmp_path / "file")


def test_the_cache_imports_no_tensorflow() -> None:
    code = "import sys, odt_sim.export, odt_sim.export.cache; sys.exit('tensorflow' in sys.modules or 'keras' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", SIZES)
def test_the_configured_model_exports_and_trains(name: str, tmp_path: Path) -> None:
    from odt_sim.export.__main__ import export_spec

    spec = yaml.safe_load((MODELS / f"{name}.yaml").read_text())
    spec["build"].update(SHORTER.get(name, {}))
    model = TrainableModel.load(export_spec(spec, tmp_path / "m.tflite"))
    assert model.name == name
    assert model.layout.size == SIZES[name]
    train = Interpreter(model_content=model.content, num_threads=1).get_signature_runner("train")
    random = np.random.default_rng(0)
    x = random.normal(size=model.x.shape) if model.x.dtype == "float32" else random.integers(0, 50, model.x.shape)
    batch = {
        "x": x.astype(model.x.dtype),
        "y": random.integers(0, model.classes or 0, model.y.shape).astype(np.int32),
        "sample_weight": np.ones(model.batch_size, np.float32),
        "learning_rate": np.float32(0.005),
    }
    losses = [float(train(**batch)["loss"]) for _ in range(5)]
    assert losses[-1] < losses[0]


def test_mobilenet_v2_is_lowered_whole() -> None:
    """All but the conversion, which takes long and meets the ops of MobileNet again."""
    from odt_sim.export.__main__ import _build
    from odt_sim.export.check import check_model
    from odt_sim.export.objective import objective_of, optimizer_of
    from odt_sim.export.signatures import emit_signatures, last_op, trace_infer, trace_train

    spec = yaml.safe_load((MODELS / "mobilenet_v2.yaml").read_text())
    model, optimizer = _build(spec), optimizer_of(spec["optimizer"])
    check_model(model, spec["batch_size"])
    optimizer.build(model.trainable_variables)
    infer = trace_infer(model, spec["batch_size"])
    output = infer.concrete.structured_outputs["logits"].shape
    train = trace_train(model, objective_of(spec["loss"], last_op(infer)), optimizer, output)
    signatures = emit_signatures(infer, train, model, optimizer)
    assert {"train", "infer", "parameters", "restore", "optimizer_state"} <= set(signatures.functions)
    kinds = {op.type for op in signatures.functions["train"].graph.get_operations()}
    assert not kinds & {"DepthwiseConv2dNativeBackpropFilter", "Conv2DBackpropInput", "Relu6Grad"}
    assert model.count_params() == 423_018
