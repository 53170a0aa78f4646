"""The check that LiteRT.js, and so the page for phones, can train a model."""

from odt_sim.errors import ModelError
from odt_sim.model.trainable import TrainableModel

TYPES = ("float32", "int32", "uint8")
"""The types of inputs and outputs that LiteRT.js supports."""


def check_for_browsers(model: TrainableModel) -> None:
    """Check that browsers can train a model.

    Raises:
        ModelError: The file takes any number of rows, or an input or output has another type than `TYPES`.
    """
    if not (model.fixed_batch and all(tensor.shape[0] > 0 for tensor in model.infer_inputs.values())):
        raise ModelError(
            f"{model.where}: takes any number of rows, which LiteRT.js cannot run; fix the number: export it with "
            "model.batch_size=16, or for a file with Flex ops run odt-sim deflex IN OUT --batch-size 16"
        )
    for name, signature in model.signatures.items():
        for tensor in (*signature.inputs.values(), *signature.outputs.values()):
            if tensor.dtype not in TYPES:
                raise ModelError(
                    f"{model.where}: signature {name!r} has {tensor.name} of {tensor.dtype}, but LiteRT.js supports "
                    f"only {', '.join(TYPES)}; cast it inside the signature, labels to int32, and export the file again"
                )
