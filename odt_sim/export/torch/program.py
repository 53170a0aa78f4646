"""Execution of a graph of `torch.export` as TensorFlow ops."""

import copy
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.keras.padding_rows import Order
from odt_sim.export.torch import convolution, elementwise, fourier, indexing, products, reductions, resizing, shapes
from odt_sim.export.torch.modes import RANDOM, Mode
from odt_sim.export.torch.nodes import (
    ADVICE,
    changes_first,
    described,
    embedding_node,
    is_constant,
    is_read_by_other_views,
    is_view,
    name_of,
    nodes_after,
    nodes_until,
    path_of,
    scope_of,
    structured,
)
from odt_sim.export.torch.reductions import batch_norm
from odt_sim.export.torch.registry import OPS, Refusal

FAMILIES = (convolution, elementwise, fourier, indexing, products, reductions, resizing, shapes)
"""The modules that register functions."""

CHECKS = ("_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range_for_size")
"""Ops without a result that check assumptions of `torch.export`."""


@dataclass(frozen=True)
class Variables:
    """The values of a graph's placeholders.

    Attributes:
        own: The Keras variable of each parameter and running statistic, by its name in the module.
        layers: The Keras layer of each variable, by the same name.
        constants: The other buffers and constants, by name.
    """

    own: Mapping[str, Any]
    layers: Mapping[str, keras.layers.Layer]
    constants: Mapping[str, np.ndarray[Any, Any]]


class Program:
    """A graph of ATen ops that runs as TensorFlow ops."""

    def __init__(self, exported: Any, variables: Variables, orders: Mapping[str, Order]) -> None:
        """Prepare a graph.

        Args:
            exported: A `torch.export.ExportedProgram`.
            variables: Its parameters and buffers.
            orders: The order of rows of each BatchNorm whose rows are not those of the batch, see `row_orders`.
        """
        self._nodes, self._given, self._result = list(exported.graph.nodes), None, None
        self._exported, self._variables, self._orders = exported, variables, orders
        signature = exported.graph_signature
        self._names = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        self._inputs = signature.user_inputs
        lifted = signature.inputs_to_lifted_tensor_constants.values()
        self._constants = {**variables.constants, **{name: array_of(exported.constants[name]) for name in lifted}}

    def run(self, inputs: list[tf.Tensor], mode: Mode) -> Any:
        """Return the outputs of the graph.

        Args:
            inputs: The module's inputs.
            mode: The mode of its layers.

        Raises:
            ExportError: An op has no TensorFlow function.
        """
        values: dict[Any, Any] = {} if self._given is None else {self._given: inputs[0]}
        given = dict(zip(self._inputs, inputs, strict=True)) if self._given is None else {}
        for node in self._nodes:
            if node.op == "placeholder":
                name = self._names.get(node.name, "")
                if not name:
                    values[node] = given[node.name]
                else:
                    own = self._variables.own.get(name)
                    values[node] = tf.constant(self._constants[name]) if own is None else own
            elif node.op == "output":
                return structured(self._exported, _filled(node.args[0], values))
            elif node.op == "call_function":
                self._call(node, values, mode)
                if node is self._result:
                    return values[node]
            else:
                raise ExportError(
                    f"torch: the module runs a part as a separate graph ({node.target}), such as torch.cond; leave that out"
                )
        raise ExportError("torch: the graph has no output")

    def halves(self, head: Sequence[keras.layers.Layer]) -> tuple["Program", "Program"]:
        """Return the graph up to the embedding, the only tensor that enters the head, and the graph after it.

        Args:
            head: The layers of the head.

        Raises:
            ExportError: Not exactly one tensor enters the head, or ops after it use inputs or other weights.
        """
        placeholders = [node for node in self._nodes if node.op == "placeholder"]
        owners = {node: self._variables.layers.get(self._names.get(node.name, "")) for node in placeholders}
        of_head = {node for node, owner in owners.items() if any(owner is layer for layer in head)}
        of_body = {node for node, owner in owners.items() if owner is not None} - of_head
        inputs = {node for node in owners if node.name in self._inputs}
        embedding = embedding_node(self._exported.graph, of_head, inputs)
        before, after = copy.copy(self), copy.copy(self)
        before._nodes, before._result = nodes_until(self._exported.graph, embedding), embedding
        after._nodes, after._given = nodes_after(self._exported.graph, embedding, changes_first), embedding
        if bypassing := [node.name for node in after._nodes if node in of_body | inputs]:
            found = self._names.get(bypassing[0], bypassing[0])
            raise ExportError(f"embed: the part after the head of the PyTorch module also takes {found!r}; {ADVICE}")
        return before, after

    def _call(self, node: Any, values: dict[Any, Any], mode: Mode) -> None:
        if node.target is operator.getitem:
            if node.users:  # functions omit unused results, such as the positions of maxima
                values[node] = values[node.args[0]][node.args[1]]
            return
        name = name_of(node.target)
        if name in CHECKS:
            return
        try:
            with tf.name_scope(scope_of(node)):
                values[node] = self._computed(node, name, values, mode)
                if changes_first(node.target):
                    self._written(node, values)
        except Refusal as refusal:
            raise ExportError(f"torch: {described(node)} {refusal}") from refusal
        except ExportError:
            raise
        except Exception as error:  # TensorFlow raises many types
            line = str(error).strip().partition("\n")[0]
            raise ExportError(
                f"torch: {described(node)} fails with these shapes and settings ({line}); use other ops"
            ) from error

    def _computed(self, node: Any, name: str, values: dict[Any, Any], mode: Mode) -> Any:
        if "out" in node.kwargs:
            raise Refusal("writes to its argument `out`; use its return value")
        positional, keywords = _arguments(node, values)
        plain = name.rstrip("_") if not name.startswith("_") else name
        if plain == "batch_norm":
            return self._batch_norm(node, positional, mode)
        positional, keywords = (_filled_variables(v) for v in (positional, keywords))
        if plain in RANDOM:
            return RANDOM[plain](*positional, mode=mode, **keywords)
        if plain not in OPS and is_constant(node):
            return tf.constant(array_of(node.target(*node.args, **node.kwargs)))
        if plain not in OPS:
            raise Refusal("has no TensorFlow function; use other ops, or export the module's forward in Keras")
        return OPS[plain](*positional, **keywords)

    def _batch_norm(self, node: Any, arguments: list[Any], mode: Mode) -> tf.Tensor:
        x, weight, bias, mean, variance, by_batch, momentum, eps = arguments[:8]
        statistics = None if mean is None else (mean, variance)
        frozen = statistics is not None and not self._variables.layers[self._names[node.args[3].name]].trainable
        scale, shift = _filled_variables(weight), _filled_variables(bias)
        order, weights = self._orders.get(path_of(node)), mode.sample_weight
        return batch_norm(
            x,
            scale,
            shift,
            statistics,
            momentum,
            eps,
            by_batch=statistics is None or (bool(by_batch) and mode.training and not frozen),
            sample_weight=order(weights, x.shape[0] // weights.shape[0]) if order and weights is not None else weights,
        )

    def _written(self, node: Any, values: dict[Any, Any]) -> None:
        """Let later ops see an op's in-place changes."""
        target = node.args[0]
        if isinstance(values[target], keras.Variable) or self._names.get(target.name) in self._constants:
            return  # batch counts, which nothing reads; other changed buffers are refused, see `check_buffers`
        view, value = target, values[node]
        values[target] = value
        while is_view(view):
            parent = view.args[0]
            shared = len(parent.users) > 1 and view.target is not operator.getitem
            put_back = shapes.PUT_BACK.get(name_of(view.target))
            if put_back and value is not None and not isinstance(values[parent], keras.Variable):
                value = put_back(values[parent], value, *_arguments(view, values)[0][1:])
                shared = is_read_by_other_views(parent, view, values)
                values[parent] = value
            else:
                value = None
            if shared:
                raise ExportError(
                    f"torch: {described(node)} changes a view in place; use the op without the underscore"
                )
            view = parent


def is_known(target: Any) -> bool:
    """Return whether the target of a call, an ATen op or a Python function, has a function here."""
    name = name_of(target)
    plain = name if name.startswith("_") else name.rstrip("_")
    return target is operator.getitem or plain in OPS or plain in RANDOM or plain in ("batch_norm", *CHECKS)


def _arguments(node: Any, values: Mapping[Any, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return positional arguments in the order of the schema, including defaults, and keyword-only arguments by name."""
    positional, keywords = [], {}
    for place, declared in enumerate(node.target._schema.arguments):
        if place < len(node.args):
            value = node.args[place]
        elif declared.name in node.kwargs:
            value = node.kwargs[declared.name]
        elif declared.has_default_value():
            value = declared.default_value
        else:
            continue
        value = _filled(value, values)
        if declared.kwarg_only:
            if declared.name not in ("layout", "device", "pin_memory", "memory_format") and value is not None:
                keywords[declared.name] = value
        else:
            positional.append(value)
    return positional, keywords


def _filled(value: Any, values: Mapping[Any, Any]) -> Any:
    """Replace nodes by their values, and PyTorch's types by TensorFlow's."""
    import torch

    if isinstance(value, list | tuple):
        return [_filled(v, values) for v in value]
    if isinstance(value, torch.fx.Node):
        return values[value]
    if isinstance(value, torch.dtype):
        return dtype_of(value)
    return value


def _filled_variables(value: Any) -> Any:
    """Replace variables by their tensors."""
    if isinstance(value, list):
        return [_filled_variables(v) for v in value]
    if isinstance(value, dict):
        return {key: _filled_variables(v) for key, v in value.items()}
    return tf.convert_to_tensor(value.value) if isinstance(value, keras.Variable) else value


def array_of(tensor: Any) -> np.ndarray[Any, Any]:
    """Return the values of a PyTorch tensor in TensorFlow's type."""
    array: np.ndarray[Any, Any] = tensor.detach().cpu().numpy().astype(dtype_of(tensor.dtype).as_numpy_dtype)
    return array


def dtype_of(dtype: Any) -> tf.DType:
    """Return TensorFlow's type for a PyTorch type; integers become int32, as in LiteRT's inputs and outputs.

    Raises:
        ExportError: The type is not supported.
    """
    name = str(dtype).removeprefix("torch.")
    kinds = {"float32": tf.float32, "int64": tf.int32, "int32": tf.int32, "int16": tf.int32, "int8": tf.int32}
    kinds |= {"uint8": tf.int32, "bool": tf.bool, "complex64": tf.complex64}
    if name not in kinds:
        raise ExportError(
            f"torch: expected tensors of float32, integers or booleans, found {name}; call module.float()"
        )
    return kinds[name]
