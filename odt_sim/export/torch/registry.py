"""The TensorFlow functions of ATen ops."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from odt_sim.export.lowering.registry import Refusal as Refusal

Function = Callable[..., Any]
"""A function of an op's arguments in the order of its schema, including defaults, and its keyword-only arguments."""

OPS: dict[str, Function] = {}
"""The function of each op, by its name without overload, such as `conv2d`."""


def computes(*names: str) -> Callable[[Function], Function]:
    """Register a function for ops."""

    def register(function: Function) -> Function:
        OPS.update(dict.fromkeys(names, function))
        return function

    return register


def expect(name: str, found: Any, *supported: Any) -> None:
    """Refuse an argument unless it is one of the supported values."""
    if found not in supported:
        raise Refusal(f"has {name}={found!r}, expected {' or '.join(map(repr, supported))}")


def axes_of(dim: Any, rank: int) -> list[int]:
    """Return axes counted from the front; all axes for None or an empty list."""
    if dim is None or dim == []:
        return list(range(rank))
    return [d % rank for d in (dim if isinstance(dim, list | tuple) else [dim])]


def over_last(function: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor, axis: int) -> tf.Tensor:
    """Apply a function of the last axis, which keeps the other axes, to another axis."""
    rank = len(x.shape)
    axis %= rank
    if axis == rank - 1:
        return function(x)
    order = [*(d for d in range(rank) if d != axis), axis]
    return tf.transpose(function(tf.transpose(x, order)), [order.index(d) for d in range(rank)])


def number(value: Any, like: tf.Tensor) -> tf.Tensor:
    """Return a number or a tensor as a tensor of the type of `like`."""
    return tf.cast(value, like.dtype)


def pair(value: Any, count: int) -> list[int]:
    """Return one size per spatial axis; as in PyTorch, one number or a list of one is for all axes."""
    values = list(value) if isinstance(value, list | tuple) else [value]
    return values * count if len(values) == 1 else values
