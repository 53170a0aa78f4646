"""The Keras subprocess reads a tiny copy of Fashion-MNIST in the original format."""

import gzip
import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from odt_sim.data.sources.builtin import cached_keras_file, keras_dataset
from odt_sim.errors import DataError
from odt_sim.export.keras_download import TEXT_LENGTH, join, main

needs_keras = pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="needs Keras (the extra export)")


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("ODT_SIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # nothing listens there, so that no test downloads
    return tmp_path


def write_fashion_mnist(folder):
    folder.mkdir(parents=True)
    for part, first, count in (("train", 0, 3), ("t10k", 3, 2)):
        labels = bytes(range(first, first + count))
        pixels = b"".join(bytes([51 * label]) * 784 for label in labels)
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(bytes(8) + labels))
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(16) + pixels))


@pytest.mark.slow
@needs_keras
def test_keras_dataset_is_joined_and_cached(folders):
    write_fashion_mnist(folders / "keras" / "datasets" / "fashion-mnist")
    dataset = keras_dataset("fashion_mnist")
    assert dataset.name == "fashion_mnist"
    assert dataset.y.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(dataset.x[:, 5, 5, 0], [0, 0.2, 0.4, 0.6, 0.8], rtol=1e-6)
    path = folders / "cache" / "data" / "keras_fashion_mnist.npz"
    assert [path] == list(path.parent.iterdir())
    written = path.stat().st_mtime_ns
    assert keras_dataset("fashion_mnist").x.shape == (5, 28, 28, 1)
    assert path.stat().st_mtime_ns == written


@pytest.mark.slow
@needs_keras
def test_failed_download_is_one_line_and_leaves_no_file(folders):
    message = r"data mnist: Keras failed to load it \(.*URL fetch failure.*check the name and the network"
    with pytest.raises(DataError, match=message) as caught:
        keras_dataset("mnist")
    assert "\n" not in str(caught.value)
    assert list((folders / "cache" / "data").iterdir()) == []


@pytest.mark.slow
@needs_keras
def test_unknown_name_ends_the_download_program(folders):
    with pytest.raises(SystemExit, match=r"^unknown data set; expected one of .*fashion_mnist"):
        main("nist", str(folders / "nist.npz"))
    assert not (folders / "nist.npz").exists()


def test_missing_keras_names_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"data mnist: needs Keras .* pip install 'odt_sim\[export\]'"):
        cached_keras_file("mnist")


def test_name_cannot_leave_the_cache():
    with pytest.raises(DataError, match=r"data \.\./mnist: is not the name of a Keras data set"):
        cached_keras_file("../mnist")


@needs_keras
def test_unusable_cache_folder_is_named(folders):
    (folders / "cache").write_text("a file")
    with pytest.raises(DataError, match=r"data mnist: cannot be stored in .*set ODT_SIM_CACHE"):
        cached_keras_file("mnist")


@needs_keras
def test_texts_are_cut_and_padded():
    def load_data(num_words):
        texts = np.array([[1, 2, 3], list(range(250))], object)
        return (texts, np.array([0, 1])), (texts[:1], np.array([1]))

    x, y = join(load_data)
    assert x.shape == (3, TEXT_LENGTH)
    assert x[0, -4:].tolist() == [0, 1, 2, 3]
    assert x[1].tolist() == list(range(50, 250))
    assert y.tolist() == [0, 1, 1]


def test_configuration_reads_the_cache(folders):
    path = folders / "cache" / "data" / "keras_mnist.npz"
    path.parent.mkdir(parents=True)
    np.savez(path, x=np.zeros((2, 28, 28), np.uint8), y=np.array([3, 4]))
    config = OmegaConf.load(Path(__file__).parents[2] / "conf" / "data" / "keras.yaml")
    assert instantiate(config).x.shape == (2, 28, 28, 1)
