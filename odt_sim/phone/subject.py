"""Subject of a phone's checks, measurements and personalization: a model, examples, and class names."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from odt_sim.data.store.columns import only
from odt_sim.device.batches import Batch, batches
from odt_sim.device.examples import Examples
from odt_sim.device.plan import own_learning_rate
from odt_sim.device.random import random_rows
from odt_sim.metrics.tasks import model_task
from odt_sim.model.contract.browsers import check_for_browsers
from odt_sim.model.reading.flatbuffer import TensorInfo
from odt_sim.model.trainable import TrainableModel

Source = Literal["drawing", "motion", "rows"]

STEPS = 6
"""Number of training steps in a recording."""
LARGEST_DRAWING = 64  # pixels per side
MOTION_CHANNELS = (3, 6, 9)
DEFAULT_LEARNING_RATE = 0.01


@dataclass(frozen=True, eq=False)
class Subject:
    """A model with reference examples.

    Attributes:
        model: The model.
        batches: Batches of examples, one per step of a recording.
        origin: The origin of the examples, in words.
        real: Whether they are real data, in the range that the model was designed for.
        labels: The names of the classes; empty for a model that does not classify whole examples.
    """

    model: TrainableModel
    batches: tuple[Batch, ...]
    origin: str
    real: bool
    labels: tuple[str, ...]

    @classmethod
    def of(cls, model: TrainableModel, x: Any, y: Any, origin: str, labels: tuple[str, ...] = ()) -> "Subject":
        """Return a subject with real examples.

        Args:
            model: The model.
            x: `[examples, ...]`, or several inputs; only enough for `STEPS` batches are used, repeated if there are too
                few.
            y: `[examples, ...]`, or several targets.
            origin: The origin of the examples, in words.
            labels: The names of the classes; by default their indices.

        Raises:
            DataError: The examples do not fit the model.
            ModelError: Browsers cannot train the model.
        """
        check_for_browsers(model)
        examples = Examples.checked(model, x, y, origin)
        rows = np.arange(STEPS * model.batch_size) % len(examples)
        taken = tuple(batches(model, *examples.take(rows)))
        return cls(model, taken, origin, True, _named(model, labels))

    @classmethod
    def random(cls, model: TrainableModel, labels: tuple[str, ...] = ()) -> "Subject":
        """Return a subject with random examples that match the model's shapes and range of labels.

        Args:
            model: The model.
            labels: The names of the classes; by default their indices.

        Raises:
            ModelError: Browsers cannot train the model.
        """
        check_for_browsers(model)
        x, y = random_rows(model, np.random.default_rng(0), STEPS * model.batch_size)
        return cls(model, tuple(batches(model, x, y)), "random examples", False, _named(model, labels))

    @property
    def learning_rate(self) -> float | None:
        """The model's learning rate, or a small default; None if its steps have no learning rate."""
        if "learning_rate" not in self.model.capabilities:
            return None
        return own_learning_rate(self.model) or DEFAULT_LEARNING_RATE

    @property
    def source(self) -> Source:
        """How a user creates examples: by drawing, by recorded motion, or only by rows of a file."""
        return source_of(self.model.x) if self.labels and len(self.model.inputs) == 1 else "rows"

    @property
    def shades(self) -> tuple[float, float]:
        """The values of paper and ink in drawings: 0 and 1, or the values of real images, such as 255 and 0."""
        if not (self.real and self.source == "drawing"):
            return 0.0, 1.0
        x = np.concatenate([only(batch.x, "x", "export the model with one input") for batch in self.batches])
        low, high = float(x.min()), float(x.max())
        edge = float(np.median(x[:, 0]))  # the upper edge is mostly paper
        return (low, high) if edge < (low + high) / 2 else (high, low)


def source_of(x: TensorInfo) -> Source:
    """Return how a user creates examples for an input of a classifier."""
    shape = x.shape[1:]
    if x.dtype != "float32":
        return "rows"
    if len(shape) == 3 and shape[2] == 1 and shape[0] == shape[1] <= LARGEST_DRAWING:
        return "drawing"
    return "motion" if len(shape) == 2 and min(shape) in MOTION_CHANNELS and min(shape) < max(shape) else "rows"


def _named(model: TrainableModel, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the classes, or their indices if other classes are named.

    Empty for a model that does not classify whole examples.
    """
    classes = _classes(model)
    return names if len(names) == classes else tuple(map(str, range(classes)))


def _classes(model: TrainableModel) -> int:
    """Return the number of classes of whole examples; 0 for several outputs, other tasks, or classes of positions."""
    if len(model.outputs) > 1 or len(model.output.shape) > 2 or model_task(model) in ("multi_label", "regression"):
        return 0
    return model.classes or 0
