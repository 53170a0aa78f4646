"""The named inputs and outputs of a Keras model."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from odt_sim.export.parameters import unique
from odt_sim.model.names import full


@dataclass(frozen=True)
class Interface:
    """What a model takes and returns.

    Attributes:
        inputs: The inputs as the model takes them: symbolic tensors, one or nested in lists and mappings.
        outputs: The outputs as the model returns them.
        input_names: The name of each input in flat order, an identifier; one input has the name "".
        output_names: The name of each output in flat order; one output has the name "".
    """

    inputs: Any
    outputs: Any
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]

    @property
    def flat_inputs(self) -> list[keras.KerasTensor]:
        """The inputs in the order of their names."""
        return list(keras.tree.flatten(self.inputs))

    @property
    def flat_outputs(self) -> list[keras.KerasTensor]:
        """The outputs in the order of their names."""
        return list(keras.tree.flatten(self.outputs))

    def specs(self, batch_size: int | None, prefix: str = "x") -> list[tf.TensorSpec]:
        """Return the arguments of a traced call of the model: `x`, or `x_<name>` for each of several inputs."""
        return [
            tf.TensorSpec([batch_size, *tensor.shape[1:]], tensor.dtype, name=full(prefix, name))
            for name, tensor in zip(self.input_names, self.flat_inputs, strict=True)
        ]

    def output_shapes(self, batch_size: int | None) -> list[tf.TensorShape]:
        """Return the shape of each output."""
        return [tf.TensorShape([batch_size, *tensor.shape[1:]]) for tensor in self.flat_outputs]

    def arguments(self, flat: Sequence[tf.Tensor]) -> Any:
        """Return flat inputs in the structure that the model takes."""
        if self.input_names == ("",) and not isinstance(self.inputs, dict):
            return flat[0]
        return keras.tree.pack_sequence_as(self.inputs, list(flat))


def interface_of(model: keras.Model) -> Interface:
    """Return the interface of a Functional or Sequential model; names are those of Keras."""
    inputs = getattr(model, "_inputs_struct", model.inputs)  # a Sequential has a Functional inside
    outputs = getattr(model, "_outputs_struct", model.outputs)
    names = getattr(model, "output_names", [tensor.name for tensor in model.outputs])
    return Interface(
        inputs,
        outputs,
        _names(inputs, [tensor.name for tensor in keras.tree.flatten(inputs)]),
        _names(outputs, names),
    )


def _names(structure: Any, names: Sequence[str]) -> tuple[str, ...]:
    """Return the name of each tensor as a unique identifier: the key in a mapping, or its name in Keras."""
    if len(names) == 1:
        return ("",)
    if isinstance(structure, dict) and len(structure) == len(names):
        names = list(keras.tree.flatten({key: key for key in structure}))
    return tuple(unique([identifier(name) for name in names]))


def identifier(name: Any) -> str:
    """Return a name of Keras as it is part of the names in signatures."""
    name = re.sub(r"[^a-zA-Z0-9_]", "_", str(name))
    return name if name.isidentifier() else f"_{name}"
