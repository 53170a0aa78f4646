"""Checks of targets for connectionist temporal classification (CTC)."""

import numpy as np

from odt_sim.data.columns import Array
from odt_sim.errors import DataError


def check_transcripts(where: str, y: Array, frames: int, classes: int) -> None:
    """Check that a model with the given frames and classes can output the labels of all examples.

    Args:
        where: The name for errors.
        y: `[examples, labels]` numbers from 1, padded with zeros at the end.
        frames: The number of frames of the model's output.
        classes: The number of its classes, the blank included.

    Raises:
        DataError: A label is out of range, a 0 is before a label, or an example needs more frames.
    """
    if y.ndim != 2:
        return  # the check of shapes reports it
    if (wrong := (y < 0) | (y >= classes)).any():
        example, place = np.argwhere(wrong)[0]
        raise DataError(
            f"{where}: example {example} has the label {y[example, place]}; with the loss ctc the model takes the "
            f"labels 1..{classes - 1}, followed by zeros: pad with 0, or renumber the labels"
        )
    if (gap := (y[:, :-1] == 0) & (y[:, 1:] != 0)).any():
        raise DataError(
            f"{where}: example {int(np.argwhere(gap)[0][0])} has a 0 before a label; with the loss ctc 0 is the "
            "blank, which may only follow the labels: number the labels from 1"
        )
    needed = np.count_nonzero(y, axis=1) + np.count_nonzero((y[:, 1:] == y[:, :-1]) & (y[:, 1:] != 0), axis=1)
    if (needed > frames).any():
        example = int(needed.argmax())
        raise DataError(
            f"{where}: example {example} needs {needed[example]} frames, one per label and one between equal labels, "
            f"but the model's output has {frames}; leave out such examples, or choose a model with more frames"
        )
