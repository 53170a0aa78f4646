"""Models of the configuration: exported once, in a process of their own."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from odt_sim.errors import ConfigurationError, ExportError
from odt_sim.export import cache
from odt_sim.export.cache import exported
from odt_sim.model.trainable import TrainableModel

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
