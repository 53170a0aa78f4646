"""Files for inference only: `infer` with constant weights, in several formats."""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from odt_sim.deploy.int8 import quantized
from odt_sim.device.engines import quiet
from odt_sim.device.examples import Examples
from odt_sim.errors import ConfigurationError
from odt_sim.model.editing.inference_only import inference_only, with_half_floats
from odt_sim.model.trainable import TrainableModel

FORMATS = ("float32", "float16", "int8")


def inference_files(model: TrainableModel, formats: Sequence[str], examples: Examples | None) -> dict[str, bytes]:
    """Return files with only the signature `infer`, by format.

    Args:
        model: The model with its final weights.
        formats: Some of `FORMATS`: how weights are stored; in `int8`, they are multiplied with 8-bit activations.
            Inputs and outputs keep their types.
        examples: The examples for the calibration of `int8`; None if there are none.

    Raises:
        ModelError: `infer` needs more than constants, or cannot be quantized.
        ConfigurationError: The extra `deploy` is missing, or `int8` has no examples.
    """
    if not formats:
        return {}
    if "int8" in formats and examples is None:
        raise ConfigurationError(
            f"{model.where}: int8 needs examples of the run's data, which runs started from Python do not record; leave "
            "the format out, or call odt_sim.deploy.write.deploy with the Simulation"
        )
    with quiet():
        content = inference_only(model.content, model.where)
    make: Mapping[str, Callable[[], bytes]] = {
        "float32": lambda: content,
        "float16": lambda: with_half_floats(content),
        "int8": lambda: quantized(content, model, cast(Examples, examples)),
    }
    return {format: make[format]() for format in formats}
