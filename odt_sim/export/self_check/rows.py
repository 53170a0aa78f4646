"""Rows that fit a model's inputs and the targets of its losses: those of an example, or random ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from odt_sim.export.keras.interface import Interface
from odt_sim.export.keras.losses import CLASSIFIERS
from odt_sim.export.keras.objective import NUMBERED, Objective, settings_of_loss
from odt_sim.export.keras.parameters import all_layers
from odt_sim.export.keras.random_batches import drawn
from odt_sim.export.self_check.side import Array
from odt_sim.model.contract.manifest import CTC

ONE_HOT = ("categorical_crossentropy", "categorical_focal_crossentropy", "categorical_hinge", "kl_divergence")


@dataclass(frozen=True)
class Rows:
    """A source of rows for a model.

    Attributes:
        interface: The model's inputs and outputs.
        objectives: The loss of each output.
        words: The integers from 0 that every integer input accepts.
        example: The values of inputs and targets that the caller gave, by name in signatures, `[any rows, ...]`.
    """

    interface: Interface
    objectives: Sequence[Objective]
    words: int
    example: dict[str, Array]

    def drawn(self, rows: int, random: np.random.Generator, *, positive: bool) -> dict[str, Array]:
        """Return the inputs and targets of some rows by name.

        Args:
            rows: The number of rows.
            random: The source of random numbers.
            positive: Whether floats are between 0 and 1 and integers at least 1, for models that do not accept all.
        """
        specs = self.interface.specs(None)
        inputs = {spec.name: drawn(spec, random, rows, words=self.words, positive=positive) for spec in specs}
        outputs = zip(self.objectives, self.interface.output_shapes(None), strict=True)
        targets = {each.target.name: _target(each, shape, rows, random) for each, shape in outputs}
        chosen = random.permutation(np.arange(rows))
        examples = {name: values[chosen % len(values)] for name, values in self.example.items()}
        return {**inputs, **targets, **examples}


def rows_of(model: keras.Model, interface: Interface, objectives: Sequence[Objective], example: Any) -> Rows:
    """Return the source of rows for a model.

    Args:
        model: The model.
        interface: Its inputs and outputs.
        objectives: The loss of each output.
        example: The caller's `(x, y)`, `(x,)` or `x`, or None. Values that are all equal, as in `np.zeros`, and objects
            without values only describe shapes.
    """
    tables = [layer.input_dim for layer in all_layers(model) if isinstance(layer, keras.layers.Embedding)]
    return Rows(interface, objectives, max(2, min(tables, default=2)), _values(interface, objectives, example))


def _values(interface: Interface, objectives: Sequence[Objective], example: Any) -> dict[str, Array]:
    if example is None:
        return {}
    x, y, _ = keras.utils.unpack_x_y_sample_weight(example)
    sides = ((interface.specs(None), x), ([each.target for each in objectives], y))
    named = [
        (spec, value)
        for specs, values in sides
        if values is not None
        for spec, value in zip(specs, keras.tree.flatten(values), strict=False)
    ]
    arrays = {spec.name: np.asarray(value) for spec, value in named if _has_values(value)}
    return {name: array for name, array in arrays.items() if array.ndim and len(array) and (array != array[:1]).any()}


def _has_values(value: Any) -> bool:
    return not isinstance(value, keras.KerasTensor | tf.TensorSpec) and hasattr(value, "__array__")


def _target(objective: Objective, output: tf.TensorShape, rows: int, random: np.random.Generator) -> Array:
    """Return targets that a loss accepts."""
    shape, kind = [rows, *objective.target.shape[1:]], objective.name
    axis = settings_of_loss(objective.function).get("axis")
    axis = axis if isinstance(axis, int) else -1  # the axis of classes; others sum over several axes
    classes = int(output[axis] or 2) if output.rank else 2
    if kind == CTC:
        labels = random.integers(1, max(classes, 2), shape)
        return np.where(np.arange(shape[1]) < (shape[1] + 1) // 2, labels, 0)
    if kind in NUMBERED:
        return random.integers(0, classes, shape)
    if kind in ONE_HOT:
        hot = np.eye(classes, dtype=np.float32)[random.integers(0, classes, np.delete(shape, axis))]
        return np.moveaxis(hot, -1, axis)
    if kind in CLASSIFIERS or not objective.target.dtype.is_floating:
        return random.integers(0, 2, shape).astype(objective.target.dtype.as_numpy_dtype)
    return random.uniform(0.05, 0.95, shape).astype(np.float32)
