"""Audio features: log-mel spectrograms and mel-frequency cepstral coefficients.

They match TensorFlow's, so that a phone can compute the same features:
https://www.tensorflow.org/api_docs/python/tf/signal/mfccs_from_log_mel_spectrograms.
The mel scale is HTK's, `2595 log10(1 + f / 700)` for a frequency f in Hz.
"""

import numpy as np

from odt_sim.data.dataset import Array

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
