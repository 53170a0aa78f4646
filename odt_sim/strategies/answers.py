"""Log-probabilities of a model's predictions, for strategies that use distillation."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.columns import Rows, only
from odt_sim.device.device import Device
from odt_sim.metrics.losses import log_probabilities, log_softmax


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
