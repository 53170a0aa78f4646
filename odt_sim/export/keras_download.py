"""Download a data set of `keras.datasets` to an `.npz` file, in a separate program because Keras imports slowly."""

import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

TEXT_WORDS = 10_000
TEXT_LENGTH = 200


def join(load_data: Callable[..., Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the joined training and test `x` and `y` of a `load_data` function of `keras.datasets`.

    Texts are truncated and padded at the front to `[examples, TEXT_LENGTH]`.
    """
    text = "num_words" in inspect.signature(load_data).parameters
    (x, y), (x_test, y_test) = load_data(num_words=TEXT_WORDS) if text else load_data()
    x, y = np.concatenate([x, x_test]), np.concatenate([y, y_test])
    if x.dtype == object:
        from keras.utils import pad_sequences

        x = pad_sequences(x, maxlen=TEXT_LENGTH)
    return x, y


def main(name: str, path: str) -> None:
    """Write the data set `name` to the file `path`; on failure, exit with one line on stderr."""
    try:
        from keras import datasets

        dataset = getattr(datasets, name, None)
        if dataset is None:
            sys.exit(
                f"unknown data set; expected one of {', '.join(key for key in dir(datasets) if not key.startswith('_'))}"
            )
        x, y = join(dataset.load_data)
        np.savez(path, x=x, y=y)
    except Exception as error:  # Keras, the network or the disk may fail; the parent reports one line
        sys.exit(" ".join(f"{type(error).__name__}: {error}".split()))


if __name__ == "__main__":
    main(*sys.argv[1:])
