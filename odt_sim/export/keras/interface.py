"""The named inputs and outputs of a Keras model."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.keras.parameters import leaf_layers, unique
from odt_sim.model.contract.names import full


@dataclass(frozen=True)
class Interface:
    """The inputs and outputs of a model, with their names.

    Attributes:
        inputs: The inputs in the model's structure: a symbolic tensor, or several nested in lists and mappings.
        outputs: The outputs in the model's structure.
        input_names: The name of each input in flat order, an identifier; a single input has the name "".
        output_names: The name of each output in flat order; a single output has the name "".
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
        """Return flat inputs in the model's input structure."""
        if self.input_names == ("",) and not isinstance(self.inputs, dict):
            return flat[0]
        return keras.tree.pack_sequence_as(self.inputs, list(flat))

    def returned(self, flat: Sequence[tf.Tensor]) -> Any:
        """Return flat outputs, or their targets, in the model's output structure."""
        if self.output_names == ("",) and not isinstance(self.outputs, dict):
            return flat[0]
        return keras.tree.pack_sequence_as(self.outputs, list(flat))


@dataclass(frozen=True)
class Subject:
    """The model of an export, as all of its stages need it.

    Attributes:
        model: The model, or a part of it, such as its head.
        interface: The inputs and outputs.
        groups: The group of each layer with weights, by the layer's `id`.
        batch_size: The rows of a batch; None for any number.
    """

    model: keras.Model
    interface: Interface
    groups: Mapping[int, str]
    batch_size: int | None

    def layers(self, groups: Sequence[str]) -> list[keras.layers.Layer]:
        """Return the layers of some groups."""
        return [layer for layer in leaf_layers(self.model) if self.groups.get(id(layer)) in groups]

    def specs(self, prefix: str = "x") -> list[tf.TensorSpec]:
        """Return the arguments of a traced call of the model."""
        return self.interface.specs(self.batch_size, prefix)


def interface_of(model: keras.Model, example: Any = None) -> Interface:
    """Return the interface of a model, with Keras' names.

    Args:
        model: A Functional or Sequential model, or a model with its own `call`, which is built if necessary.
        example: Inputs of a model with its own `call`, as specs (see `data_of`).
    """
    if not getattr(model, "inputs", None):
        called = _called(model, example if example is not None else _built_for(model))
        if not getattr(model, "inputs", None):  # the call built a Sequential
            return called
    inputs, outputs = graph_of(model)
    names = getattr(model, "output_names", [tensor.name for tensor in model.outputs])
    known = Interface(
        inputs,
        outputs,
        _names(inputs, [tensor.name for tensor in keras.tree.flatten(inputs)]),
        _names(outputs, names),
    )
    if example is None or all(None not in tensor.shape[1:] for tensor in known.flat_inputs):
        return known
    called = _called(model, example)
    return replace(known, inputs=called.inputs, outputs=called.outputs)


def graph_of(model: keras.Model) -> tuple[Any, Any]:
    """Return the symbolic inputs and outputs of a Functional or Sequential model, in the model's structures."""
    inputs = getattr(model, "_inputs_struct", model.inputs)  # a Sequential wraps a Functional
    return inputs, getattr(model, "_outputs_struct", model.outputs)


def _called(model: keras.Model, inputs: Any) -> Interface:
    """Call a model on zeros, which builds it, and return its interface."""
    zeros = keras.tree.map_structure(lambda spec: tf.zeros([1, *spec.shape[1:]], spec.dtype), inputs)
    try:
        outputs = model(zeros, training=False) if model._call_has_training_arg else model(zeros)
    except Exception as error:  # user code may raise anything
        if type(model).call is keras.Model.call:
            raise ExportError(
                f"model {model.name!r}: expected a method call(self, x), which computes the outputs of `infer`, found none; "
                f"add it to {type(model).__name__}"
            ) from error
        raise ExportError(
            f"model {model.name!r}: cannot be called on an example of zeros ({one_line(error)}); pass a suitable "
            "batch as example=(x, y)"
        ) from error
    names = [
        [f"{side}_{i}" for i in range(len(keras.tree.flatten(tensors)))]
        for side, tensors in (("input", inputs), ("output", outputs))
    ]
    return Interface(inputs, outputs, _names(inputs, names[0]), _names(outputs, names[1]))


def _built_for(model: keras.Model) -> Any:
    """Return the inputs that a model with its own `call` was built for, as float32."""
    shapes = getattr(model, "_build_shapes_dict", None) if model.built else None
    if not shapes or len(shapes) != 1:
        raise ExportError(
            f"model {model.name!r}: expected a built Keras model or a batch to build it with; pass example=(x, y), "
            "or start the model with an Input"
        )
    (shape,) = shapes.values()
    nested = isinstance(shape, dict) or (
        isinstance(shape, list | tuple) and any(isinstance(s, list | tuple) for s in shape)
    )
    if nested:
        return keras.tree.map_shape_structure(lambda own: tf.TensorSpec(own), shape)
    return tf.TensorSpec(shape)


def data_of(example: Any) -> tuple[Any, list[tf.TensorSpec] | None]:
    """Return the inputs of an example as specs in their structure, and its targets as a flat list or None.

    Args:
        example: `(x, y)`, `(x,)` or `x` as for `fit`: arrays, or objects with a shape and a dtype, batch first. For None,
            both results are None.
    """
    if example is None:
        return None, None
    x, y, _ = keras.utils.unpack_x_y_sample_weight(example)
    try:
        inputs = keras.tree.map_structure(_spec, x)
        return inputs, None if y is None else [_spec(value) for value in keras.tree.flatten(y)]
    except (TypeError, ValueError, AttributeError) as error:
        raise ExportError(
            f"example: expected a batch (x, y) of arrays with the batch as the first axis ({one_line(error)})"
        ) from error


def _spec(value: Any) -> tf.TensorSpec:
    if not hasattr(value, "shape"):
        value = np.asarray(value)
    if len(value.shape) < 1:
        raise ValueError(f"found {value!r}")
    dtype = tf.as_dtype(keras.backend.standardize_dtype(value.dtype))
    narrow = {tf.float64: tf.float32, tf.int64: tf.int32}
    return tf.TensorSpec([None, *value.shape[1:]], narrow.get(dtype, dtype))


def one_line(error: Exception) -> str:
    """Return an error as one line: the first one, and the second after Keras' prefix."""
    lines = [line.strip() for line in re.sub(r"\x1b\[\d+m", "", str(error)).splitlines() if line.strip()]
    return " ".join(lines[: 1 + lines[0].startswith("Exception encountered")]) if lines else type(error).__name__


def reason(error: Exception, arguments: Sequence[tf.TensorSpec | tf.Tensor]) -> str:
    """Return an error of a function as one line, with advice if its arguments leave the number of rows open."""
    line = one_line(error).removesuffix(".")
    unknown = "None" in line and any(own.shape[:1].as_list() == [None] for own in arguments)
    return f"{line}; for the number of rows, use keras.ops.shape(x)[0] instead of x.shape[0]" if unknown else line


def _names(structure: Any, names: Sequence[str]) -> tuple[str, ...]:
    """Return the name of each tensor as a unique identifier: its key in a mapping, or its Keras name."""
    if len(names) == 1:
        return ("",)
    if isinstance(structure, dict) and len(structure) == len(names):
        names = list(keras.tree.flatten({key: key for key in structure}))
    return tuple(unique([identifier(name) for name in names]))


def identifier(name: Any) -> str:
    """Return a Keras name as an identifier for names in signatures."""
    name = re.sub(r"[^a-zA-Z0-9_]", "_", str(name))
    return name if name.isidentifier() else f"_{name}"


def per_output(setting: str, given: Any, names: Sequence[str]) -> list[Any]:
    """Return the setting of each output, given one for all outputs, a list, or a mapping by name."""
    if isinstance(given, list | tuple):
        if len(given) != len(names):
            raise ExportError(f"{setting}: expected one for each of {len(names)} outputs, found {len(given)}")
        return list(given)
    if not isinstance(given, Mapping) or "name" in given:
        return [given] * len(names)
    if names == ("",) and len(given) == 1:
        return list(given.values())
    by_name = {identifier(key): value for key, value in given.items()}
    if set(by_name) != set(names):
        raise ExportError(f"{setting}: expected the outputs {', '.join(names)}, found {', '.join(map(str, given))}")
    return [by_name[name] for name in names]
