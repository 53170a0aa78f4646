"""Classes of a device's examples and predictions, for strategies that calibrate, distil or send prototypes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.store.columns import Rows, only
from odt_sim.device.device import Device
from odt_sim.metrics.losses import log_probabilities, log_softmax

ABSENT = -1e4
"""Logit shift for a class without examples; it makes the class's probability 0."""


def labels_of(device: Device) -> NDArray[np.int64]:
    """Return the class of each training example, `[examples]`."""
    return labels_in(only(device.train_examples.take()[1], device.model.name, "choose another strategy"))


def labels_in(y: Any) -> NDArray[np.int64]:
    """Return the class of each target, `[examples]`, from labels `[examples]` or `[examples, 1]`, or one-hot rows."""
    labels = y if y.ndim == 1 or y.shape[-1] == 1 else y.argmax(axis=-1)
    return np.asarray(labels.reshape(-1), np.int64)


def class_counts(device: Device) -> NDArray[np.float64]:
    """Return the number of training examples of each class, `[classes]`."""
    return np.bincount(labels_of(device), minlength=device.model.output.shape[-1]).astype(np.float64)


def means_by_class(device: Device, rows: NDArray[Any]) -> NDArray[np.float64]:
    """Return the mean row of each class's training examples, `[classes, features]`; zeros for a class without any.

    Args:
        device: The device.
        rows: `[examples, features]`.
    """
    counts, labels = class_counts(device), labels_of(device)
    sums = np.zeros((len(counts), rows.shape[1]))
    np.add.at(sums, labels, rows)
    return np.asarray(sums / np.maximum(counts, 1)[:, np.newaxis])


def log_probabilities_of(device: Device) -> NDArray[np.float64]:
    """Return the logarithm of each class's probability for each training example, `[examples, classes]`."""
    return logarithms(device, device.outputs("train"))


def logarithms(device: Device, outputs: Rows) -> NDArray[np.float64]:
    """Return the logarithm of each class's probability, `[examples, classes]`.

    Args:
        device: The device.
        outputs: Outputs of its model, `[examples, classes]`.
    """
    answers: NDArray[Any] = only(outputs, "infer", "choose another strategy")
    return np.asarray(log_softmax(answers) if device.model.from_logits else log_probabilities(answers))
