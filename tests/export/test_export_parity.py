"""LiteRT and Keras agree on weights, statistics and optimizer slots after five steps."""

from typing import Any

import keras
import pytest
from coverage_exports import keep
from coverage_table import FAMILIES
from keras import layers
from parity.case import Case, Family
from parity.losses import LOSSES
from parity.models import MODELS
from parity.optimizers import OPTIMIZERS, STEPS

from odt_sim.export.keras.parameters import all_layers

MATRICES = (LOSSES, OPTIMIZERS, STEPS)
FAST = {"Huber", "Adam", "clipping by global norm"}  # of the matrices
SLOW = {
    "a convolutional recurrent layer of volumes",
    "a frozen body",
    "a loss at each position",
    "a pooling beside a skip connection",
    "a shared layer",
    "a normalized kernel",
    "activations",
    "adapters",
    "batch normalization along other axes",
    "batch normalization of masked sequences",
    "convolutions along one axis",
    "convolutions with strides and dilation",
    "colors of images",
    "convolutional recurrent layers",
    "dropout of images",
    "functions of images",
    "further convolutions of videos",
    "further normalization",
    "further random images",
    "grouped convolutions",
    "loops",
    "cells of your own",
    "masked positions",
    "masked values",
    "max-pools that leave a rest",
    "max-pools that overlap, lie apart and fit",
    "noise",
    "poolings of videos",
    "recurrent layers of cells, with dropout",
    "recurrent layers",
    "resized images",
    "random numbers in own layers",
    "recurrent convolutions",
    "shapes of images",
    "shapes of videos",
    "spectrograms of sound",
    "states passed on",
    "three models deep",
    "tied weights",
    "transforms of images",
    "transposed convolutions",
}


def marked(case: Case, family: Family) -> Any:
    """Return a case for parametrization; each family has a fast one."""
    slow = case.name in SLOW or (family in MATRICES and case.name not in FAST)
    return pytest.param(case, marks=[pytest.mark.slow] if slow else [], id=case.name)


CASES = [marked(case, family) for family in FAMILIES if family is not MODELS for case in family.cases]


@pytest.mark.parametrize("case", CASES)
def test_litert_trains_like_keras(case: Case, twins: Any) -> None:
    keras.utils.set_random_seed(4)
    model = case.build()
    for kind in (getattr(layers, subject) for subject in case.subjects if hasattr(layers, subject)):
        assert any(isinstance(layer, kind) for layer in all_layers(model)), kind
    pair = twins(model, case.loss(), case.optimizer())
    keep(case, pair.path)
    pair.agree()


@pytest.mark.parametrize("channels", [6, 700])
def test_wide_kernels_with_a_group_per_channel_train_like_keras(channels: int, twins: Any) -> None:
    """As in ConvNeXt; LiteRT hangs in a depthwise convolution of the 5,600 channels of a batch of 8 images side by side."""
    block = [layers.Conv2D(channels, 1), layers.Conv2D(channels, 7, padding="same", groups=channels)]
    parts = [layers.Input((5, 4, 2)), *block, layers.GlobalAveragePooling2D(), layers.Dense(5)]
    twins(keras.Sequential(parts)).agree()
