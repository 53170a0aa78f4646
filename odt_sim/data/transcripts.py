"""Checks of targets of connectionist temporal classification."""

import numpy as np

from odt_sim.data.columns import Array
from odt_sim.errors import DataError


def check_transcripts(where: str, y: Array, frames: int) -> None:
    """Check that a model with some frames can spell the labels of all examples.

    Args:
        where: The name for errors.
        y: `[examples, labels]` integers from 1, with zeros behind the labels of each example.
        frames: The number of frames of the model's output.

    Raises:
        DataError: A label is negative, a 0 is before a label, or an example needs more frames.
    """
    if y.ndim != 2 or y.dtype.kind not in "iu":
        return  # an error of its shape or dtype
    if (y < 0).any():
        example = int(np.argwhere(y < 0)[0][0])
        raise DataError(
            f"{where}: example {example} has the label {y[example].min()}; the loss ctc takes labels from 1 with zeros "
            "behind them: pad by 0"
        )
    if (gap := (y[:, :-1] == 0) & (y[:, 1:] != 0)).any():
        raise DataError(
            f"{where}: example {int(np.argwhere(gap)[0][0])} has a 0 before a label; with the loss ctc 0 is the blank, which "
            "only fills the places behind the labels: number the labels from 1"
        )
    needed = np.count_nonzero(y, axis=1) + np.count_nonzero((y[:, 1:] == y[:, :-1]) & (y[:, 1:] != 0), axis=1)
    if (needed > frames).any():
        example = int(needed.argmax())
        raise DataError(
            f"{where}: example {example} needs {needed[example]} frames, one for each label and one between equal ones, the "
            f"model's output has {frames}; leave such examples out, or choose a model with more frames"
        )
