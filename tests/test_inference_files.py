"""The inference files of models in `conf/model`, in every format."""

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from odt_sim import TrainableModel
from odt_sim.deploy.formats import FORMATS, inference_files
from odt_sim.deploy.measure import measured
from odt_sim.device.examples import Examples
from odt_sim.device.random import random_rows
from odt_sim.device.runtime import Runtime
from odt_sim.model.reading import flatbuffer
from odt_sim.model.reading.graph_reader import read_graph


def rows(model, seed, count):
    x, random = model.x, np.random.default_rng(seed)
    shape = (count, *x.shape[1:])
    return random.random(shape, np.float32) if x.dtype == "float32" else random.integers(0, 10, shape).astype(x.dtype)


def outputs(content, model):
    infer = Interpreter(model_content=content, num_threads=1).get_signature_runner("infer")
    return infer(x=rows(model, 9, model.batch_size))[model.output.name]


def check_formats(model: TrainableModel) -> None:
    """Compare with the trainable file; for int8, within a quarter of the spread of the untrained outputs."""
    examples = Examples(rows(model, 0, 100), np.zeros(100, np.int32))
    expected = Runtime(model).infer(rows(model, 9, model.batch_size))
    files = inference_files(model, FORMATS, examples)
    if "CONV_2D" in flatbuffer.read(files["float32"], "mine").operators["infer"]:
        np.testing.assert_allclose(outputs(files["float32"], model), expected, rtol=1e-4, atol=1e-5)
    else:
        assert outputs(files["float32"], model).tobytes() == expected.tobytes()
    np.testing.assert_allclose(outputs(files["float16"], model), expected, rtol=1e-2, atol=2e-2 * expected.std())
    error = np.sqrt(np.mean((outputs(files["int8"], model) - expected) ** 2))
    assert error < 0.25 * expected.std()
    assert list(flatbuffer.read(files["int8"], "mine").signatures.values()) == [model.signatures["infer"]]
    largest = max(np.prod(parameter.shape) for parameter in model.parameters)
    if largest > 5000:
        assert len(files["int8"]) < 0.9 * len(files["float32"])
        assert len(files["float16"]) < 0.9 * len(files["float32"])


@pytest.mark.parametrize("name", ["softmax", "digits_mlp", "digits_cnn"])
def test_formats_agree(name, configured):
    check_formats(configured(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["character_lstm", "har_cnn", "mnist_cnn", "resnet8", "transformer_encoder"])
def test_formats_of_larger_models_agree(name, configured):
    check_formats(configured(name))


def test_file_of_any_rows_takes_any_rows(any_rows):
    examples = Examples(rows(any_rows, 0, 100), np.zeros(100, np.int32))
    for format, content in inference_files(any_rows, FORMATS, examples).items():
        infer = Interpreter(model_content=content).get_signature_runner("infer")
        for count in (1, 5):
            x = rows(any_rows, 3, count)
            expected = Runtime(any_rows).infer(x)
            found = infer(x=x)["logits"]
            np.testing.assert_allclose(found, expected, atol=0.25 * expected.std() if format == "int8" else 1e-2)


@pytest.mark.parametrize("name", ["recommender", "heads"])
def test_files_of_several_inputs_or_outputs_score_alike(name, request):
    model = request.getfixturevalue(name)
    examples = Examples(*random_rows(model, np.random.default_rng(0), 30))
    expected = measured(model.content, model, examples, "trainable")
    for format, content in inference_files(model, FORMATS, examples).items():
        found = measured(content, model, examples, format)
        assert found.keys() == expected.keys()
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-6 if format == "float32" else 0.05)


def test_slices_have_the_type_of_what_they_slice(tmp_path) -> None:
    import keras

    from odt_sim.export import export_model

    x = keras.Input((8, 8, 1))
    cropped = keras.layers.Cropping2D(1)(keras.layers.Conv2D(2, 3)(x))
    gates = keras.ops.sigmoid(keras.layers.Dense(4)(keras.layers.Flatten()(keras.layers.Conv2D(2, 3)(cropped))))
    network = keras.Model(x, keras.layers.Dense(2)(gates[:, :3]))
    path = export_model(network, tmp_path / "m.tflite", loss="mse", optimizer="sgd", batch_size=2)
    model = TrainableModel.load(path)
    content = inference_files(model, ["int8"], Examples(rows(model, 0, 8), np.zeros((8, 2), np.float32)))["int8"]
    [part] = read_graph(content, "int8").subgraphs
    sliced = [part.tensors[op.outputs[0]] for op in part.ops if op.kind == "STRIDED_SLICE"]
    assert [(tensor.shape, tensor.dtype) for tensor in sliced] == [((2, 4, 4, 2), "int8"), ((2, 3), "float32")]


@pytest.mark.slow
def test_spectrograms_are_quantized(tmp_path) -> None:
    import keras

    from odt_sim.export import export_model

    keras.utils.set_random_seed(1)
    settings = {"fft_length": 32, "sequence_stride": 16, "sequence_length": 32, "num_mel_bins": 4}
    x = keras.Input((64,))
    mels = keras.layers.MelSpectrogram(**settings, sampling_rate=64, min_freq=1, max_freq=32, top_db=200)(x)
    network = keras.Model(x, keras.layers.Dense(2)(keras.layers.Flatten()(mels)))
    path = export_model(network, tmp_path / "m.tflite", loss="mse", optimizer="sgd", batch_size=2)
    model = TrainableModel.load(path)
    waves = rows(model, 0, 8)
    content = inference_files(model, ["int8"], Examples(waves, np.zeros((8, 2), np.float32)))["int8"]
    found = Interpreter(model_content=content, num_threads=1).get_signature_runner("infer")(x=waves[:2])["logits"]
    expected = Runtime(model).infer(waves[:2])
    np.testing.assert_allclose(found, expected, atol=0.3 * np.abs(expected).max())  # 8 bits of decibels
