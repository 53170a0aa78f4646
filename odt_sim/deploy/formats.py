"""Files for inference alone: `infer` with constant weights, in several formats."""

from odt_sim.deploy.int8 import quantized
from odt_sim.device.examples import Examples
from odt_sim.device.native_output import quiet
from odt_sim.model.float16 import with_half_floats
from odt_sim.model.inference_only import inference_only
from odt_sim.model.trainable import TrainableModel

FORMATS = ("float32", "float16", "int8")


def inference_file(model: TrainableModel, format: str, examples: Examples) -> bytes:
    """Return a file with the signature `infer` alone.

    Args:
        model: The model with its final weights.
        format: One of `FORMATS`: how weights are stored; in `int8`, activations are 8-bit integers too. Inputs and outputs
            stay as they are.
        examples: What `int8` is calibrated on.

    Raises:
        ModelError: `infer` needs more than constants, or cannot be quantized.
        ConfigurationError: The extra `deploy` is missing.
    """
    with quiet():
        content = inference_only(model.content, model.where)
    if format == "float16":
        return with_half_floats(content)
    return quantized(content, model, examples) if format == "int8" else content
