"""Audio files, in folders by user and class; needs `pip install 'odt_sim[audio]'`."""

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from odt_sim._support.checks import names_arguments
from odt_sim.data.dataset import Array, Dataset
from odt_sim.data.image_files import decoded_files
from odt_sim.data.spectra import log_mel, mfcc
from odt_sim.errors import ConfigurationError, DataError
from odt_sim.extras import package

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


@names_arguments
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
