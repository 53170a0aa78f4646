"""The positions of a model's outputs that count, given Keras' masks and the labels that a loss ignores."""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from odt_sim.model.trainable import TrainableModel

Arrays = Mapping[str, NDArray[Any]]


def masks_of(model: TrainableModel, y: Arrays, masks: Arrays) -> dict[str, NDArray[Any]]:
    """Return for each output a mask, 1 where a position counts, in the shape of its labels; absent if all count.

    Args:
        model: The model.
        y: The targets by name.
        masks: Masks `[examples, positions]` by name, as `infer` returns them.
    """
    found: dict[str, NDArray[Any]] = {name: mask.reshape(mask.shape[:2]) for name, mask in masks.items()}
    for name, ignored in model.ignored_classes.items():
        if ignored is not None:
            labels = y[name].reshape(len(y[name]), *model.targets[name].shape[1:])
            counts = labels != ignored
            own = found.get(name)
            found[name] = counts if own is None else counts & (own.reshape(*own.shape, *[1] * (counts.ndim - 2)) != 0)
    return found
