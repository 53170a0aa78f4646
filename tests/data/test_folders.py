"""Folders of images and of sounds, by user and class."""

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from odt_sim.data.sources.audio_files import AudioFormat, audio, log_mel, mel_bands, mfcc
from odt_sim.data.sources.image_files import ImageFormat, images
from odt_sim.data.store.columns import is_mapped
from odt_sim.errors import ConfigurationError, DataError
from odt_sim.export.cache import QUIET


@pytest.fixture
def stores(tmp_path):
    return str(tmp_path / "stores")


def save_image(path, pixels, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.array(pixels, np.uint8)).save(path, **options)


def save_sound(path, samples, rate=16_000):
    soundfile = pytest.importorskip("soundfile")
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.asarray(samples, np.float32), rate, subtype="FLOAT" if path.suffix == ".wav" else None)


@pytest.fixture
def pictures(tmp_path):
    """Three gray images of 2x2 of two users and two classes, and other files."""
    folder = tmp_path / "pictures"
    for name, pixel in (("bo/cat/1.png", 255), ("al/dog/2.PNG", 51), ("al/cat/3.png", 0)):
        save_image(folder / name, [[pixel, 0], [0, 0]])
    (folder / "al" / "notes.txt").write_text("")
    (folder / "al" / "cat" / ".hidden.png").write_text("")
    return folder


def test_images_have_users_and_classes_of_folders(pictures, stores):
    dataset = images(pictures, store=stores)
    assert dataset.x[:, 0, 0, 0].tolist() == pytest.approx([0, 0.2, 1])
    assert (dataset.x.shape, dataset.x.dtype) == ((3, 2, 2, 1), np.float32)
    assert (dataset.y.tolist(), dataset.users.tolist()) == ([0, 1, 0], ["al", "al", "bo"])
    assert (dataset.classes, dataset.class_names, dataset.name) == (2, ("cat", "dog"), "pictures")
    assert is_mapped(dataset.x)
    assert images(pictures, store=stores).x.path == dataset.x.path


def test_named_classes_keep_their_numbers(pictures, stores):
    dataset = images(pictures, store=stores, classes=["dog", "bird", "cat"])
    assert (dataset.y.tolist(), dataset.classes) == ([2, 0, 2], 3)
    with pytest.raises(
        DataError, match=r"pictures: found the class 'dog', expected one of bird, cat; append it to data\.classes"
    ):
        images(pictures, store=stores, classes=["bird", "cat"])


def test_images_are_resized_and_get_channels(pictures, stores):
    save_image(pictures / "bo" / "cat" / "4.png", np.full((4, 6, 3), 100))
    dataset = images(pictures, size=[3, 5], channels=3, store=stores)
    assert dataset.x.shape == (4, 3, 5, 3)
    np.testing.assert_allclose(dataset.x[3], 100 / 255, rtol=1e-6)
    with pytest.raises(DataError, match=r"4\.png has shape \[4, 6, 3\], but .*3\.png has \[2, 2, 1\]; set data\.size="):
        images(pictures, store=stores)


def test_photos_are_turned_upright():
    file, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6  # orientation: turn by 90 degrees clockwise
    Image.fromarray(np.array([[0, 255]], np.uint8)).save(file, "png", exif=exif)
    assert ImageFormat().decoded(file.getvalue(), "photo")[..., 0].tolist() == [[0], [255]]


def test_table_gives_users_of_class_folders(tmp_path, stores):
    folder = tmp_path / "animals"
    for name in ("cat/1.png", "dog/2.png"):
        save_image(folder / name, [[0]])
    assert images(folder, store=stores).users is None
    table = tmp_path / "users.csv"
    table.write_text("file,user\ndog/2.png,al\ncat/1.png,bo\n")
    assert images(folder, str(table), store=stores).users.tolist() == ["bo", "al"]
    table.write_text("file,user\ndog/2.png,al\n")
    with pytest.raises(DataError, match=r"users\.csv: has no user for cat/1\.png and 0 other files; add them"):
        images(folder, str(table), store=stores)
    table.write_text("name,user\n")
    with pytest.raises(DataError, match="has no column 'file'; name its columns file and user"):
        images(folder, str(table), store=stores)
    with pytest.raises(DataError, match=r"none\.csv: cannot be read"):
        images(folder, str(tmp_path / "none.csv"), store=stores)


def test_unusable_images_are_refused(pictures, stores, tmp_path):
    save_image(pictures / "deep" / "er" / "cat" / "1.png", [[0]])
    with pytest.raises(
        DataError, match=r"expected USER/CLASS/FILE or CLASS/FILE for all files, found deep/er/cat/1\.png"
    ):
        images(pictures, store=stores)
    (pictures / "deep" / "er" / "cat" / "1.png").unlink()
    (pictures / "al" / "cat" / "bad.png").write_text("text")
    with pytest.raises(DataError, match=r"bad\.png: is not a readable image \(.*\); replace or remove it"):
        images(pictures, store=stores)
    with pytest.raises(
        DataError, match=r"empty: contains no file that ends in \.bmp, .*; give a folder of USER/CLASS/FILE"
    ):
        images(tmp_path / "empty", store=stores)
    with pytest.raises(
        DataError,
        match=r"1\.png: expected a folder of USER/CLASS/FILE, found a file; give the path "
        r"of the folder",
    ):
        images(pictures / "bo" / "cat" / "1.png", store=stores)
    deep = Image.fromarray(np.zeros((2, 2), np.uint16))
    deep.save(pictures / "al" / "cat" / "bad.png")
    with pytest.raises(DataError, match=r"bad\.png: has pixels of mode I;16, expected 8 bits per channel; convert it"):
        images(pictures, store=stores)
    with pytest.raises(ConfigurationError, match=r"data\.size: expected \[height,width\], found \[3\]"):
        images(pictures, size=[3], store=stores)
    with pytest.raises(ConfigurationError, match=r"data\.size: expected \[height,width\], found 3; write \[3,3\]"):
        images(pictures, size=3, store=stores)
    with pytest.raises(ConfigurationError, match=r"data\.channels: expected 1, 3 or null, found 4"):
        images(pictures, channels=4, store=stores)


def test_sounds_become_waveforms(tmp_path, stores):
    save_sound(tmp_path / "words" / "bo" / "yes" / "1.wav", [0.5, -0.5, 0.25])
    save_sound(tmp_path / "words" / "al" / "no" / "2.flac", np.full((4, 2), [0.5, 0.0]))
    dataset = audio(tmp_path / "words", seconds=4 / 16_000, store=stores)
    np.testing.assert_allclose(dataset.x[:], [[0.25] * 4, [0.5, -0.5, 0.25, 0]], atol=1e-4)
    assert (dataset.y.tolist(), dataset.users.tolist(), dataset.classes) == ([0, 1], ["al", "bo"], 2)
    assert is_mapped(dataset.x)
    with pytest.raises(
        DataError, match=r"1\.wav has shape \[3\], but .*2\.flac has \[4\]; set data\.seconds to pad or cut"
    ):
        audio(tmp_path / "words", store=stores)


def test_a_second_of_speech_has_49_frames_of_10_coefficients(tmp_path, stores):
    save_sound(tmp_path / "words" / "bo" / "yes" / "1.wav", np.random.default_rng(0).normal(size=16_000) / 10)
    dataset = audio(tmp_path / "words", transform="mfcc", store=stores)
    assert dataset.x.shape == (1, 49, 10, 1)
    bands = audio(tmp_path / "words", transform="log_mel", store=stores).x[0, ..., 0]
    assert bands.shape == (49, 40)
    np.testing.assert_allclose(dataset.x[0, ..., 0], mfcc(bands, 10), rtol=1e-5)


def test_tone_is_loudest_in_its_mel_band():
    tone = np.sin(2 * np.pi * 1000 * np.arange(16_000) / 16_000).astype(np.float32)
    loudest = log_mel(tone, 16_000, 0.04, 0.02, 40).argmax(axis=1)
    edges = 700 * (10 ** (np.linspace(31.749, 2840.023, 42) / 2595) - 1)  # of bands between 20 and 8,000 Hz
    assert {int(np.abs(edges[1:-1] - 1000).argmin())} == {*loudest.tolist()}
    assert mel_bands(40, 1024, 16_000).max() <= 1
    np.testing.assert_allclose(log_mel(np.zeros(700, np.float32), 16_000, 0.04, 0.02, 40), np.log(1e-6), rtol=1e-6)


def test_constant_bands_have_one_coefficient():
    np.testing.assert_allclose(mfcc(np.full((1, 8), 3.0), 4), [[3 * np.sqrt(2 * 8), 0, 0, 0]], atol=1e-6)


def test_unusable_sounds_are_refused(tmp_path, stores, monkeypatch):
    folder = tmp_path / "words"
    save_sound(folder / "bo" / "yes" / "1.wav", [0.0] * 8, rate=8000)
    with pytest.raises(
        DataError, match=r"1\.wav: has 8000 samples per second, expected 16000; resample it, or set data\.rate=8000"
    ):
        audio(folder, store=stores)
    with pytest.raises(DataError, match=r"1\.wav: is shorter than one frame of 0\.04 seconds; set data\.seconds"):
        audio(folder, rate=8000, transform="mfcc", store=stores)
    save_sound(folder / "bo" / "yes" / "1.wav", [], rate=16_000)
    with pytest.raises(DataError, match=r"1\.wav: has no samples; replace or remove it"):
        audio(folder, seconds=1, store=stores)
    (folder / "bo" / "yes" / "1.wav").write_text("text")
    with pytest.raises(DataError, match=r"1\.wav: is not a readable sound file \(.*\); replace or remove it"):
        audio(folder, store=stores)
    with pytest.raises(ConfigurationError, match=r"data\.coefficients: expected 1\.\.40, at most data\.mels, found 41"):
        AudioFormat(coefficients=41)
    with pytest.raises(ConfigurationError, match=r"data\.seconds: expected a number above 0, found 0"):
        AudioFormat(seconds=0)
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(DataError, match=r"sounds need soundfile .*pip install 'odt_sim\[audio\]'"):
        audio(folder, store=stores)


PROGRAM = """
import numpy as np, tensorflow as tf
from odt_sim.data.sources.audio_files import log_mel, mfcc

waveform = np.random.default_rng(0).normal(size=16_000).astype(np.float32) / 10
magnitudes = tf.abs(tf.signal.stft(waveform, 640, 320, 1024))
bands = tf.signal.linear_to_mel_weight_matrix(40, 513, 16_000, 20.0, 8000.0)
expected = tf.math.log(magnitudes @ bands + 1e-6)
found = log_mel(waveform, 16_000, 0.04, 0.02, 40)
np.testing.assert_allclose(found, expected, atol=1e-4)
np.testing.assert_allclose(mfcc(found, 10), tf.signal.mfccs_from_log_mel_spectrograms(expected)[:, :10], atol=1e-4)
"""


@pytest.mark.slow
def test_features_equal_those_of_tensorflow():
    environment = {**os.environ, **QUIET, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
