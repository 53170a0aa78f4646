"""Layers that prepare inputs inside a model, where they make a model see something else than was meant."""

import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from odt_sim.errors import ExportWarning
from odt_sim.export import export_model
from odt_sim.model.reading.graph_reader import read_graph
from odt_sim.model.reading.inputs import unscaled
from odt_sim.model.trainable import TrainableModel

SOUNDS = {"fft_length": 32, "sequence_stride": 16, "sequence_length": 32, "num_mel_bins": 4, "sampling_rate": 64}


def export(path: Path, shape: tuple[int, ...], *parts: Any) -> TrainableModel:
    network = keras.Sequential([keras.Input(shape), *parts, layers.Flatten(), layers.Dense(2)])
    return TrainableModel.load(export_model(network, path / "m.tflite", loss="mse", optimizer="sgd", batch_size=2))


@pytest.mark.slow
def test_factor_of_an_input_is_that_of_its_first_layers(tmp_path: Path) -> None:
    backbone = keras.Sequential([keras.Input((4, 4, 3)), layers.Rescaling(1 / 127.5, -1), layers.Conv2D(2, 3)])
    model = export(tmp_path, (6, 6, 3), layers.Resizing(4, 4), layers.RandomFlip(), backbone, layers.Rescaling(9.0))
    assert model.scales == {"": pytest.approx(1 / 127.5)}
    assert export(tmp_path, (4, 4, 3), layers.Rescaling(255.0), backbone).scales == {"": pytest.approx(2.0)}
    assert export(tmp_path, (4, 4, 3), layers.Conv2D(2, 3), layers.Rescaling(1 / 255)).scales == {}


@pytest.mark.slow
def test_model_that_normalizes_takes_no_features_as_they_are(tmp_path: Path) -> None:
    first = [[], [layers.Dropout(0.1)], [layers.Normalization(mean=3.0, variance=2.0)], [layers.BatchNormalization()]]
    models = [export(tmp_path, (6,), *parts, layers.Dense(3)) for parts in first]
    found = [unscaled(read_graph(model.content, "m.tflite"), "infer") for model in models]
    assert found == [["x"], ["x"], [], []]


@pytest.mark.slow
def test_layers_that_mix_the_examples_of_a_batch_are_warned_of(tmp_path: Path) -> None:
    mels = [layers.MelSpectrogram(**SOUNDS, min_freq=1, max_freq=32, top_db=top, name="mel") for top in (80, 200)]
    with pytest.warns(ExportWarning, match=r"layer 'mel': its floor is top_db=80 below the loudest .*; set top_db=200"):
        export(tmp_path, (64,), mels[0])
    with (
        pytest.warns(ExportWarning, match=r"layer 'mix_up': mixes the inputs of a batch but not their labels"),
        pytest.warns(ExportWarning, match="its training steps were not compared"),  # it draws other numbers
    ):
        export(tmp_path, (4, 4, 3), layers.MixUp(name="mix_up"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        export(tmp_path, (64,), mels[1])
    quiet, loud = np.random.default_rng(0).normal(0, [[1e-4], [1.0]], (2, 64)).astype(np.float32)
    together, alone = ([mel(sounds)[0] for mel in mels] for sounds in (np.stack([quiet, loud]), quiet[None]))
    assert np.abs(together[0] - alone[0]).max() > 10
    np.testing.assert_allclose(together[1], alone[1], atol=1e-3)
