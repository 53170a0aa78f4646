"""Plain forms of the values that processes exchange: numbers, texts and raw arrays.

Between calls of LiteRT, whose data fill the processor's caches, pickling a block's result takes 46 us as objects and 5
us as plain values.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from odt_sim.data.columns import Array
from odt_sim.model.tensors import Tensors, array_of
from odt_sim.model.weights import Layout, Weights
from odt_sim.simulation.job import Task, Trained

KINDS = "biuf"
"""The dtype kinds that are sent as raw arrays, with their dtype as text; other arrays are pickled."""

REST = tuple(field.name for field in fields(Trained) if field.name not in ("sums", "layouts"))


class Plain(NamedTuple):
    """A value in two parts.

    Attributes:
        value: Numbers, texts and collections of them, as far as possible.
        arrays: Contiguous arrays.
    """

    value: Any
    arrays: Sequence[Array] = ()


def plain_tensors(tensors: Tensors) -> Plain:
    """Return tensors in their plain form."""
    return _plain(
        {name: array_of(tensor) for name, tensor in tensors.items()},
        {name: tensor.layout if isinstance(tensor, Weights) else None for name, tensor in tensors.items()},
    )


def tensors_of(value: Any, buffers: Iterator[Any]) -> dict[str, Weights | Array]:
    """Return tensors, given the value of `plain_tensors` and the bytes of its arrays."""
    arrays, layouts = _original(value, buffers)
    return {
        name: array if (layout := layouts[name]) is None else Weights(layout, array) for name, array in arrays.items()
    }


def plain_result(value: Any) -> Plain:
    """Return a block's result in its plain form if it is a `Trained`; any other result unchanged."""
    if not isinstance(value, Trained):
        return Plain((None, value))
    sums, arrays = _plain(value.sums, value.layouts)
    return Plain((sums, [getattr(value, name) for name in REST]), arrays)


def result_of(value: Any, buffers: Iterator[Any]) -> Any:
    """Return a block's result, given the value of `plain_result` and the bytes of its arrays."""
    sums, rest = value
    return rest if sums is None else Trained(*_original(sums, buffers), **dict(zip(REST, rest, strict=True)))


def plain_tasks(tasks: Sequence[Task]) -> list[list[Any]]:
    """Return blocks as lists of their attributes."""
    return [[*vars(task).values()] for task in tasks]


def tasks_of(values: Sequence[Sequence[Any]]) -> list[Task]:
    """Return blocks, given the lists of `plain_tasks`."""
    return [Task(*attributes) for attributes in values]


def _plain(arrays: Mapping[str, Array], layouts: Mapping[str, Layout | None]) -> Plain:
    texts = [(name, layout and layout.text) for name, layout in layouts.items()]
    known = {name: array for name, array in arrays.items() if array.dtype.kind in KINDS}
    forms = [
        (name, array.dtype.str, array.shape) if name in known else (name, None, array) for name, array in arrays.items()
    ]
    return Plain((forms, texts), [np.ascontiguousarray(array) for array in known.values()])


def _original(value: Any, buffers: Iterator[Any]) -> tuple[dict[str, Array], dict[str, Layout | None]]:
    forms, texts = value
    arrays = {name: form if dtype is None else np.ndarray(form, dtype, next(buffers)) for name, dtype, form in forms}
    return arrays, {name: text and Layout.of(text) for name, text in texts}
