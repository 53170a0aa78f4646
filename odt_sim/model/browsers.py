"""What the page for phones and LiteRT.js can train."""

from odt_sim.errors import ModelError
from odt_sim.model.manifest import LOSSES
from odt_sim.model.names import full
from odt_sim.model.trainable import TrainableModel

TYPES = ("float32", "int32", "uint8")
"""The types that LiteRT.js passes at the border of signatures."""


def check_for_browsers(model: TrainableModel) -> None:
    """Check that browsers can train a model and compute its figures.

    Raises:
        ModelError: It has several inputs or outputs, a mask, an ignored class, a loss that the page has no formula for, or
            further inputs of steps; or the file takes any number of rows, or passes other types than `TYPES`.
    """
    _check_form(model)
    if model.train_inputs:
        raise ModelError(
            f"{model.where}: its steps take {', '.join(model.train_inputs)}, which phones do not pass; export it "
            "without terms"
        )
    if not (model.fixed_batch and all(tensor.shape[0] > 0 for tensor in model.infer_inputs.values())):
        raise ModelError(
            f"{model.where}: takes any number of rows, which LiteRT.js cannot run; fix them: export it with "
            "model.batch_size=16, or rewrite a file with Flex ops by odt-sim deflex IN OUT --batch-size 16"
        )
    for name, signature in model.signatures.items():
        for tensor in (*signature.inputs.values(), *signature.outputs.values()):
            if tensor.dtype not in TYPES:
                raise ModelError(
                    f"{model.where}: signature {name!r} has {tensor.name} of {tensor.dtype}, where LiteRT.js has "
                    f"{', '.join(TYPES)}; cast it inside of the signature, labels to int32, and export the file again"
                )


def _check_form(model: TrainableModel) -> None:
    if len(model.inputs) > 1 or len(model.targets) > 1 or len(model.answers) > 1:
        inputs = ", ".join(full("x", name) for name in model.inputs)
        found = f"takes {inputs} and {', '.join(full('y', name) for name in model.targets)}"
    elif model.masks:
        found = "returns a mask"
    elif (ignored := model.outputs[0].ignore_class) is not None:
        found = f"leaves the label {ignored} out of its loss and figures"
    elif model.returns_losses and model.loss not in LOSSES:
        found = f"has the loss {model.loss or 'of its own function'}"
    else:
        return
    raise ModelError(
        f"{model.where}: {found}; the page for phones trains models with one input, one output without a mask and a loss "
        f"of {', '.join(LOSSES)}; simulate it with backend=auto"
    )
