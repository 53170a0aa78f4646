"""The models of a complete run: each device's own, and the global one."""

from pathlib import Path

from odt_sim.device.device import Device
from odt_sim.errors import CheckpointError, ModelError, StrategyError
from odt_sim.model.editing.initial_weights import with_initial_weights
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights
from odt_sim.persistence.run_folder import TRAINED_MODEL, RunFolder
from odt_sim.simulation.run.coordinator import Simulation


def device_model(simulation: Simulation, device: int) -> TrainableModel:
    """Return a trainable model that starts with the weights of a device's user.

    Args:
        simulation: A complete run.
        device: The device's id; unseen devices have a model too.

    Raises:
        ConfigurationError: The fleet has no such device.
        CheckpointError: The run is not complete, or its checkpoint is missing or damaged.
        StrategyError: The strategy deploys more than a model's weights.
    """
    [model] = [personal_model(each) for each in simulation.deployed([device])]
    return model


def personal_model(device: Device) -> TrainableModel:
    """Return a trainable model that starts with the weights of a device of `Simulation.deployed`.

    Raises:
        StrategyError: The strategy also deploys a correction or a predictor, which a file cannot contain.
        ModelError: The weights are not finite, or the file does not initialize its variables.
    """
    where = f"device {device.id}"
    if device.correction is not None:
        raise StrategyError(
            f"{where}: its strategy corrects the model's outputs using the device's examples or class prototypes, "
            "which a .tflite file cannot contain; deploy the global model, or choose another strategy"
        )
    if device.predictor is not None:
        raise StrategyError(
            f"{where}: its strategy deploys a predictor ({type(device.predictor).__name__}), which the model's "
            ".tflite file cannot contain; deploy the global model, or choose another strategy"
        )
    if not device.weights.isfinite():
        raise ModelError(f"{where}: its weights are not finite; lower the learning rate, or deploy another device")
    return _starting_with(device.model, device.weights, where)


def global_file(folder: Path) -> Path:
    """Return the path of the server's model of a complete run.

    Raises:
        CheckpointError: The run is not complete.
        StrategyError: The server has no weights for the whole model.
    """
    summary = RunFolder(folder).summary()
    if summary is None:
        raise CheckpointError(f"{folder}: the run is not complete; resume it with run.resume={folder}")
    path = folder / TRAINED_MODEL
    if not path.is_file():
        raise StrategyError(
            f"{folder}: has no global model, since strategy {summary.strategy} keeps weights on the devices; deploy "
            f"a device: odt-sim deploy {folder} --device ID (--new for new users), or simulation.deployed([ID]) for "
            "a run started from Python"
        )
    return path


def new_model(simulation: Simulation) -> TrainableModel:
    """Return the trainable model for users who join after a run, to be trained on the phone first.

    Raises:
        CheckpointError: The run is not complete, or its checkpoint is missing or damaged.
        StrategyError: The strategy sends no weights of the model.
        ModelError: The file does not initialize its variables.
    """
    return _starting_with(simulation.model, simulation.for_new_devices(), "new")


def _starting_with(model: TrainableModel, weights: Weights, where: str) -> TrainableModel:
    return with_content(model, with_initial_weights(model.content, weights, model.where), where)


def with_content(model: TrainableModel, content: bytes, where: str) -> TrainableModel:
    """Return the model of another file, with the loss of the given model."""
    return TrainableModel.from_content(content, where=where, loss=model.loss, from_logits=model.from_logits)
