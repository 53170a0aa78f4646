"""Random rows that fit a model, for trials and tests."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.columns import Rows, rows_of
from odt_sim.model.flatbuffer import TensorInfo
from odt_sim.model.manifest import CTC
from odt_sim.model.trainable import TrainableModel


def random_rows(model: TrainableModel, random: np.random.Generator, count: int) -> tuple[Rows, Rows]:
    """Return `x` and `y` with `count` rows; integers are 0 or 1 where the model does not declare the valid ones."""
    x = rows_of({name: _values(tensor, random, count) for name, tensor in model.inputs.items()})
    classes = model.classes_by_target
    y = {name: _targets(tensor, classes[name], random, count) for name, tensor in model.targets.items()}
    for output in model.outputs:
        if output.loss == CTC:
            y[output.name] = spelled(y[output.name], model.answers[output.name].shape[1])
    return x, rows_of(y)


def spelled(labels: NDArray[Any], frames: int) -> NDArray[Any]:
    """Return labels of at least 1, padded with zeros; they are so few that `frames` can spell them if all are equal."""
    return np.where(np.arange(labels.shape[1]) < (frames + 1) // 2, np.maximum(labels, 1), 0).astype(labels.dtype)


def _values(tensor: TensorInfo, random: np.random.Generator, count: int) -> NDArray[Any]:
    shape = (count, *tensor.shape[1:])
    integers = np.issubdtype(tensor.dtype, np.integer)
    return (random.integers(0, 2, shape) if integers else random.normal(size=shape)).astype(tensor.dtype)


def _targets(tensor: TensorInfo, classes: int | None, random: np.random.Generator, count: int) -> NDArray[Any]:
    """Return values, class labels, or one-hot rows where the model takes those."""
    if classes is None:  # a regression, or a custom loss, which may take labels
        return _values(tensor, random, count)
    labels = random.integers(0, classes, (count, *tensor.shape[1:-1])).astype(np.int32)
    one_hot = tensor.shape[-1] == classes and len(tensor.shape) > 1
    return np.eye(classes, dtype=np.float32)[labels] if one_hot else labels
