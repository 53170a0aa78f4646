"""The models of `conf/model`, on smaller inputs if that does not change the number of weights."""

from pathlib import Path
from typing import Any

import keras
import yaml
from hydra.utils import get_method

from odt_sim.export.keras.optimizers import optimizer_of
from parity.case import Case, Family

CONFIGURED = Path(__file__).parents[3] / "conf" / "model"
OF_THE_USER = ("keras", "keras_file", "mobilenet_transfer", "tflite")  # they need a model or weights of the user
ELSEWHERE = (
    *OF_THE_USER,
    "recommender",  # has two inputs; see tests/conf/test_conf_tasks.py
    "transcriber",  # its loss has unaligned labels; see tests/export/test_ctc.py
    "mini_gpt",  # its gradients start at 0; for adapters, see fine_tuning.py
)
SENSITIVE = ("ds_cnn", "mobilenet", "mobilenet_v2", "transformer_encoder")
"""Many BatchNormalization layers, and Adam on small gradients, magnify rounding."""
SMALLER: dict[str, dict[str, Any]] = {
    "character_lstm": {"length": 6},
    "character_window": {"length": 12},
    "har_cnn": {"length": 32},
    "mobilenet": {"input_shape": [32, 32, 3]},
    "mobilenet_v2": {"input_shape": [32, 32, 3]},
    "next_word": {"length": 4},
    "resnet8": {"input_shape": [8, 8, 3]},
    "unet": {"input_shape": [8, 8, 1]},
    "word_tagger": {"length": 4},
}


def configured(name: str) -> Case:
    """Return the case of a configured model with its own loss and optimizer."""
    spec = yaml.safe_load((CONFIGURED / f"{name}.yaml").read_text())

    def build() -> Any:
        arguments = {**spec["build"], **SMALLER.get(name, {})}
        return get_method(arguments.pop("_target_"))(**arguments)

    def loss() -> Any:
        binary = spec["loss"] == "binary_crossentropy"  # given by name, Keras would expect probabilities
        return keras.losses.BinaryCrossentropy(from_logits=True) if binary else spec["loss"]

    return Case(name, (f"`{name}`",), build, loss, lambda: optimizer_of(spec["optimizer"]))


MODELS = Family(
    "Models of `conf/model`",
    "parity/models.py",
    tuple(configured(path.stem) for path in sorted(CONFIGURED.glob("*.yaml")) if path.stem not in ELSEWHERE),
)
