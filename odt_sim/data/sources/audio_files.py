"""Audio files in folders by user and class, and their features; needs `pip install 'odt_sim[audio]'`.

The features, log-mel spectrograms and mel-frequency cepstral coefficients, match TensorFlow's, so that a phone can
compute the same: https://www.tensorflow.org/api_docs/python/tf/signal/mfccs_from_log_mel_spectrograms. The mel scale is
HTK's, `2595 log10(1 + f / 700)` for a frequency f in Hz.
"""

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from odt_sim._support.system import package
from odt_sim.data.dataset import Array, Dataset
from odt_sim.data.sources.image_files import decoded_files
from odt_sim.errors import ConfigurationError, DataError

LOWEST = 20.0  # Hz, the lower edge of the first band
OFFSET = 1e-6  # keeps the logarithm of silence finite


def log_mel(waveform: Array, rate: int, window: float, hop: float, mels: int) -> Array:
    """Return the log magnitude in each mel band, `[frames, mels]` float32.

    Args:
        waveform: `[samples]` float32 in -1..1.
        rate: Samples per second.
        window: The length of a frame in seconds; a Hann window is applied.
        hop: The seconds from the start of one frame to the next.
        mels: The number of bands from 20 Hz to half the rate.
    """
    length, step = round(window * rate), round(hop * rate)
    frames = np.lib.stride_tricks.sliding_window_view(waveform, length)[::step]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / length)
    size = 1 << (length - 1).bit_length()
    magnitudes = np.abs(np.fft.rfft(frames * hann, size))
    return np.log(magnitudes @ mel_bands(mels, size, rate) + OFFSET).astype(np.float32)


def mfcc(log_mels: Array, coefficients: int) -> Array:
    """Return the first coefficients of the discrete cosine transform over bands, `[frames, coefficients]` float32.

    Args:
        log_mels: `[frames, mels]`.
        coefficients: The number of coefficients, at most `mels`.
    """
    from scipy.fft import dct

    transformed = dct(log_mels, type=2, axis=-1) / np.sqrt(2 * log_mels.shape[-1])
    return np.asarray(transformed[:, :coefficients], np.float32)


def mel_bands(mels: int, size: int, rate: int) -> Array:
    """Return the weight of each frequency in each band, `[size / 2 + 1, mels]`: overlapping triangles on the mel scale.

    Args:
        mels: The number of bands.
        size: The size of the Fourier transform.
        rate: Samples per second.
    """
    frequencies = _mel(np.linspace(0, rate / 2, size // 2 + 1))[:, np.newaxis]
    edges = np.linspace(_mel(np.array(LOWEST)), _mel(np.array(rate / 2)), mels + 2)
    lower, center, upper = edges[:-2], edges[1:-1], edges[2:]
    weights = np.minimum((frequencies - lower) / (center - lower), (upper - frequencies) / (upper - center))
    weights[0] = 0  # a constant offset is inaudible
    return np.maximum(weights, 0)


def _mel(frequency: Array) -> Array:
    return np.asarray(2595 * np.log10(1 + frequency / 700))


ENDINGS = {".wav", ".flac", ".ogg", ".mp3"}
Transform = Literal["log_mel", "mfcc"]


@dataclass(frozen=True)
class AudioFormat:
    """Format to which all sounds of a data set are converted.

    Attributes:
        rate: Samples per second, which files must have.
        seconds: The length to which sounds are cut or padded with zeros; None if all have the same length.
        transform: The features to compute instead of the waveform, `log_mel` or `mfcc`; None for the waveform.
        window: The length of a feature's frame in seconds.
        hop: The seconds from one frame to the next.
        mels: The number of mel bands.
        coefficients: The number of coefficients of `mfcc`.
    """

    rate: int = 16_000
    seconds: float | None = None
    transform: Transform | None = None
    window: float = 0.04
    hop: float = 0.02
    mels: int = 40
    coefficients: int = 10

    advice = "set data.seconds to pad or cut them"

    def __post_init__(self) -> None:
        """Check the values."""
        for name in ("rate", "seconds", "window", "hop", "mels"):
            if (value := getattr(self, name)) is not None and not value > 0:
                raise ConfigurationError(f"data.{name}: expected a number above 0, found {value}")
        if not 1 <= self.coefficients <= self.mels:
            raise ConfigurationError(
                f"data.coefficients: expected 1..{self.mels}, at most data.mels, found {self.coefficients}"
            )

    def decoded(self, content: Path | bytes, where: str) -> Array:
        """Return a waveform, `[samples]` float32 in -1..1, or its features, `[frames, bands, 1]`.

        Multiple channels are averaged.

        Args:
            content: The path of a file, or its content.
            where: The name for errors.

        Raises:
            DataError: It cannot be read, is empty, has a different rate, or is shorter than a frame.
        """
        soundfile = package("soundfile", "data: sounds need soundfile", "audio", DataError)
        try:
            samples, rate = soundfile.read(
                io.BytesIO(content) if isinstance(content, bytes) else content, dtype="float32", always_2d=True
            )
        except (OSError, RuntimeError) as error:  # errors of libsndfile are RuntimeErrors
            raise DataError(f"{where}: is not a readable sound file ({error}); replace or remove it") from error
        if rate != self.rate:
            raise DataError(
                f"{where}: has {rate} samples per second, expected {self.rate}; resample it, or set data.rate={rate} "
                "for all files"
            )
        if not len(samples):
            raise DataError(f"{where}: has no samples; replace or remove it")
        waveform = samples.mean(axis=1)
        if self.seconds is not None:
            length = round(self.seconds * rate)
            waveform = np.pad(waveform[:length], (0, max(length - len(waveform), 0)))
        return np.asarray(waveform) if self.transform is None else self._features(waveform, where)

    def _features(self, waveform: Array, where: str) -> Array:
        if len(waveform) < round(self.window * self.rate):
            raise DataError(
                f"{where}: is shorter than one frame of {self.window} seconds; set data.seconds, or a smaller "
                "data.window"
            )
        bands = log_mel(waveform, self.rate, self.window, self.hop, self.mels)
        return (bands if self.transform == "log_mel" else mfcc(bands, self.coefficients))[..., np.newaxis]


def audio(
    path: str | os.PathLike[str],
    users: str | None = None,
    rate: int = AudioFormat.rate,
    seconds: float | None = None,
    transform: Transform | None = None,
    window: float = AudioFormat.window,
    hop: float = AudioFormat.hop,
    mels: int = AudioFormat.mels,
    coefficients: int = AudioFormat.coefficients,
    store: str | None = None,
    classes: Sequence[str] | None = None,
) -> Dataset:
    """Read a folder of sounds, `USER/CLASS/FILE` or `CLASS/FILE`; they are decoded once, into a store.

    `x` is `[examples, samples]` float32 in -1..1 for a model with its own front end, or with a transform
    `[examples, frames, bands, 1]`; `y` is the index of the class. Needs `odt_sim[audio]`.

    Args:
        path: The folder, with `.wav`, `.flac`, `.ogg` or `.mp3` files.
        users: A `.csv` table with the columns `file`, relative to the folder, and `user`; None if the folders name the
            users.
        rate: The sampling rate of all files, in samples per second.
        seconds: The length to which sounds are cut or padded with zeros; null if all have the same length.
        transform: The features to compute instead of the waveform, `log_mel` or `mfcc`; null for the waveform.
        window: The length of a feature's frame in seconds.
        hop: The seconds from one frame to the next.
        mels: The number of mel bands.
        coefficients: The number of coefficients of `mfcc`.
        store: The folder of stores; null for `stores` in `$ODT_SIM_CACHE` or `~/.cache/odt_sim`.
        classes: All classes in the order of their indices; null for the sorted names of the folders.

    Raises:
        ConfigurationError: A setting is out of range.
        DataError: soundfile is missing, there are no sounds, one cannot be read, has another rate, or differs in length.
    """
    format = AudioFormat(rate, seconds, transform, window, hop, mels, coefficients)
    return decoded_files(path, "audio", ENDINGS, users, format, store, classes)
