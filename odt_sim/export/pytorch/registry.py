"""The TensorFlow functions of ATen ops."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from odt_sim.export.lowering.registry import Refusal as Refusal

Function = Callable[..., Any]
"""Takes an op's arguments in the order of its schema, defaults included, and the keyword-only ones by name."""

OPS: dict[str, Function] = {}
"""The function of each op, by its name without overload, such as `conv2d`."""


def computes(*names: str) -> Callable[[Function], Function]:
    """Register a function for ops."""

    def register(function: Function) -> Function:
        OPS.update(dict.fromkeys(names, function))
        return function

    return register


def expect(name: str, found: Any, *supported: Any) -> None:
    """Refuse an argument that is none of the supported values."""
    if found not in supported:
        raise Refusal(f"has {name}={found!r}, expected {' or '.join(map(repr, supported))}")


def axes_of(dim: Any, rank: int) -> list[int]:
    """Return axes counted from the front; None or no axes are all."""
    if dim is None or dim == []:
        return list(range(rank))
    return [d % rank for d in (dim if isinstance(dim, list | tuple) else [dim])]


def over_last(function: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor, axis: int) -> tf.Tensor:
    """Return what a function of the last axis, which keeps the others, returns for another axis."""
    rank = len(x.shape)
    axis %= rank
    if axis == rank - 1:
        return function(x)
    order = [*(d for d in range(rank) if d != axis), axis]
    return tf.transpose(function(tf.transpose(x, order)), [order.index(d) for d in range(rank)])


def number(value: Any, like: tf.Tensor) -> tf.Tensor:
    """Return a number or a tensor as a tensor of another one's type."""
    return tf.cast(value, like.dtype)


def pair(value: Any, count: int) -> list[int]:
    """Return one size for each spatial axis, as PyTorch takes them: one number or a list of one is for all."""
    values = list(value) if isinstance(value, list | tuple) else [value]
    return values * count if len(values) == 1 else values
