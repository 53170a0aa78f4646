"""A device's outputs for its examples, as metrics take them: the model's, corrected ones, or those of a predictor."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from odt_sim._support.user_code import user_code_errors
from odt_sim.data.columns import Array, Rows, arrays_of, only
from odt_sim.device.examples import Examples
from odt_sim.device.inference import Inference, check_answers
from odt_sim.device.predictor import Predictor
from odt_sim.errors import InvocationError, SimulationError
from odt_sim.metrics.masks import masks_of
from odt_sim.model.trainable import TrainableModel

if TYPE_CHECKING:
    from odt_sim.device.device import Device

Correction = Callable[[Array, Array], Array]
"""A function of embeddings and outputs, each `[rows, ...]`, that returns corrected outputs."""


def answers_of(device: "Device", inference: Inference, split: str, examples: Examples) -> dict[str, Any]:
    """Return the outputs, targets, losses and masks of a split, as `model_figures` takes them.

    Args:
        device: The device, with its correction or predictor.
        inference: Runs the device's model.
        split: The split's name.
        examples: Its examples, at least one.

    Raises:
        SimulationError: The correction or the predictor failed.
    """
    if device.predictor is not None:
        return _predicted(device, device.predictor, inference, examples)
    model = device.model
    of_head = model.embeds and not model.masks
    x, y = (device.embedded(split) if of_head else examples).take()
    outputs, masks = inference.answers("head_infer" if of_head else "infer", x)
    if device.correction is not None:
        outputs = corrected(model, device.correction, device.embedded(split).x, outputs, device.id)
    losses = {}
    if model.returns_losses:
        losses = inference.losses(examples.take()[0], y, outputs, masks)
    return _counted(model, outputs, y, losses, masks)


def _predicted(device: "Device", predictor: Predictor, inference: Inference, examples: Examples) -> dict[str, Any]:
    model, (x, y) = device.model, examples.take()
    masks = inference.answers("infer", x)[1] if model.masks else {}  # they depend on the inputs only
    device.predictor = None  # the predictor may use this device
    try:
        with _errors_of(f"predictor {type(predictor).__name__}", predictor, device.id):
            outputs = predictor.predict(x)
            check_answers(outputs, model, len(x))
    finally:
        device.predictor = predictor
    losses = inference.losses(x, y, outputs, masks) if model.returns_losses else {}
    return _counted(model, outputs, y, losses, masks)


def _counted(
    model: TrainableModel, outputs: Rows, y: Rows, losses: Mapping[str, Array], masks: Mapping[str, Array]
) -> dict[str, Any]:
    targets = arrays_of(y)
    counts = masks_of(model, targets, masks)
    return {"answers": arrays_of(outputs), "y": targets, "losses": losses, "masks": counts}


def corrected(model: TrainableModel, correction: Correction, embeddings: Rows, outputs: Rows, device: int) -> Array:
    """Return the corrected outputs `[rows, ...]` of a device.

    Raises:
        SimulationError: The correction failed, or returned another shape.
    """
    advice = "choose another strategy"
    given = only(embeddings, "embed", advice), only(outputs, "infer", advice)
    with _errors_of("correction", correction, device):
        result = correction(*given)
        check_answers(result, model, len(given[1]))
    return result


def _errors_of(name: str, owner: Any, device: int) -> AbstractContextManager[None]:
    return user_code_errors(owner, f"device {device}: the {name} failed", SimulationError, passes=InvocationError)
