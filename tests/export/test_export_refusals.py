"""Models that cannot be exported are refused in one line, before the conversion."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from odt_sim.errors import ExportError
from odt_sim.export import OLDEST_KERAS, export_model


def model(*body: Any, shape: tuple[int | None, ...] = (6, 6, 2), dtype: str = "float32") -> Any:
    return keras.Sequential([layers.Input(shape, dtype=dtype), *body, layers.Flatten(), layers.Dense(3, name="last")])


class TimesFirst(layers.Layer):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.norm = layers.BatchNormalization(name="bn")

    def build(self, shape: Any) -> None:
        self.norm.build((shape[1], None, shape[2]))

    def call(self, x: Any, training: bool = False) -> Any:
        return keras.ops.transpose(self.norm(keras.ops.transpose(x, (1, 0, 2)), training=training), (1, 0, 2))


class Adversaries(keras.Model):  # type: ignore[misc]
    """A class that trains two networks."""

    def __init__(self) -> None:
        super().__init__()
        self.last = layers.Dense(3)
        self.d_optimizer, self.g_optimizer = keras.optimizers.SGD(), keras.optimizers.SGD()

    def call(self, x: Any) -> Any:
        return self.last(x)

    def train_step(self, data: Any) -> Any:
        return {"loss": 0.0}


REFUSED: list[tuple[Any, str]] = [
    (
        lambda: model(layers.RandAugment(), shape=(6, 6, 3)),
        r"^layer '\w+': RandAugment has no built-in ops; augment the data with it, before the model, or leave",
    ),
    (
        lambda: model(layers.Pipeline([layers.RandomPosterization(factor=4, name="few")])),
        r"^layer 'few': RandomPosterization has no built-in ops",
    ),
    (
        lambda: model(TimesFirst(), shape=(32, 2)),
        r"layer 'bn': BatchNormalization expects the batch as the first axis, found shape \[32, 32, 2\] for 32 "
        r"examples; call it before the transpose .*batch_size=None$",
    ),
    (lambda: 3, r"expected a built Keras"),
    (lambda: "model.keras", r"model\.keras: no such file; give"),
]


@pytest.mark.parametrize(("build", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_model_is_refused(build: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=message) as error:
        export_model(build(), tmp_path / "m.tflite", loss="sparse_categorical_crossentropy", optimizer="sgd")
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"loss": "hing"}, r"loss: expected .*hinge, .*a Keras loss object or a function, found 'hing'"),
    (
        {"loss": {"name": "huber", "delt": 1.0}},
        r"loss huber: .*unexpected keyword argument 'delt'.*; see keras\.losses\.Huber",
    ),
    ({"loss": 3}, r"loss: expected a name, a Keras loss or a function \(y_true, y_pred\), found 3"),
    ({"loss": ["mse", "mse"]}, r"loss: expected one for each of 1 outputs, found 2"),
    ({"loss_weights": "half"}, r"loss_weights: expected numbers, found 'half'"),
    (
        {
            "model": lambda: keras.Sequential([layers.Input((4,)), layers.Dense(3), layers.Softmax()]),
            "loss": "binary_crossentropy",
        },
        r"loss binary_crossentropy: the model ends in a softmax",
    ),
    (
        {"optimizer": keras.optimizers.SGD},
        r"optimizer: expected a Keras optimizer, .* found the class .*SGD; give, for example,",
    ),
    ({"optimizer": "sdg"}, r"optimizer 'sdg': not a Keras optimizer"),
    ({"optimizer": {"name": "SGD", "momentun": 0.9}}, r"optimizer \{.*momentun"),
    ({"optimizer": None}, r"expected an optimizer, or a compiled model; pass optimizer="),
    (
        {"model": Adversaries, "example": np.zeros((2, 4), np.float32)},
        r"trains with 2 optimizers \(d_optimizer, g_optimizer\), .*tf\.Module",
    ),
    ({"example": (3, 4)}, r"example: expected a batch \(x, y\) of arrays"),
    ({"batch_size": 0}, r"batch_size: expected a whole number from 1 to .*, or null for any, found 0"),
    ({"batch_size": 2.5}, r"batch_size: expected a whole number from 1 to .*, or null for any, found 2\.5"),
    ({"head": "lost"}, r"head: no layer 'lost' with weights; expected one of last"),
]


@pytest.mark.parametrize(("settings", "message"), SETTINGS, ids=[message for _, message in SETTINGS])
def test_settings_are_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    arguments = {"loss": "mse", "optimizer": "sgd", **settings}
    exported = arguments.pop("model", model)()
    with pytest.raises(ExportError, match=message):
        export_model(exported, tmp_path / "m.tflite", **arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("package", "found", "message"),
    [
        (
            "keras",
            "99.0",
            r"^keras 99\.0 is installed, but this process has already imported keras 3\.\S+; restart Python",
        ),
        ("tensorflow", "99.0", r"^tensorflow 99\.0 is installed, but this process has already imported tensorflow 2\."),
    ],
)
def test_packages_that_pip_replaced_after_their_import_are_refused(
    package: str, found: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(package, found, tmp_path, monkeypatch)
    with pytest.raises(ExportError, match=message):
        from odt_sim.export import export_model  # noqa: F401


def test_old_keras_is_refused_before_its_import(tmp_path: Path) -> None:
    installed("keras", "3.10.0", tmp_path)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from odt_sim.export import export_model"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ExportError: export needs keras>=3.15, found 3.10.0; run: pip install 'odt_sim[export]'" in done.stderr
    assert f'"keras>={OLDEST_KERAS}"' in (Path(__file__).parents[2] / "pyproject.toml").read_text()


def installed(package: str, found: str, folder: Path, monkeypatch: pytest.MonkeyPatch | None = None) -> None:
    """Make a folder that says that a version of a package is installed."""
    metadata = folder / f"{package}-{found}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {found}\n")
    if monkeypatch:
        monkeypatch.syspath_prepend(folder)
