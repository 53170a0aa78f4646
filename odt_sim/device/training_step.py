"""Training steps: the signature that trains a group of parameters, and gradient offsets.

A gradient offset makes a step use `g + mu w + b` instead of the gradient `g`. With `b = -mu w_ref` this is the proximal
term of FedProx, Ditto and pFedMe; with `b = c - c_i` it is SCAFFOLD's correction; FedDyn combines both.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from odt_sim._support.checks import shown
from odt_sim.device.batches import Batch
from odt_sim.device.runtime import Runtime
from odt_sim.device.stacked_batches import StackedBatches
from odt_sim.errors import ConfigurationError, ModelError
from odt_sim.model.manifest import GROUPS
from odt_sim.model.optional_signatures import parts_of
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Layout, Weights


class Step(NamedTuple):
    """A training signature and the parameters that it changes.

    Attributes:
        signature: `train`, `train_<group>`, or `head_train`, which takes embeddings instead of `x`.
        trained: The trainable parameters that it changes.
        only_head: Whether it changes nothing outside the head.
    """

    signature: str
    trained: Layout
    only_head: bool

    @property
    def on_embeddings(self) -> bool:
        """Whether it trains on embeddings of the examples."""
        return self.signature == "head_train"


@lru_cache(32)
def step_for(model: TrainableModel, group: str | None = None) -> Step:
    """Return the step that trains a whole model or one group; the head trains on embeddings where possible.

    Args:
        model: The model.
        group: `head`, `body`, `norm`, or several joined by `_`; None for all trainable parameters.

    Raises:
        ModelError: The model cannot train this group alone.
    """
    parts = GROUPS if group is None else parts_of(group)
    if not parts:
        raise ModelError(
            f"{model.where}: unknown parameter group {group!r}; expected {', '.join(GROUPS)}, or several joined by _"
        )
    trained = model.trainable_layout.select(lambda p: p.group in parts)
    only_head = group == "head" or model.all_moves_in(("head",))
    if only_head and model.embeds and "head" in parts:
        return Step("head_train", trained, only_head)
    if f"train_{group}" in model.signatures:
        return Step(f"train_{group}", trained, only_head)
    if not model.all_moves_in(parts):
        known = [name.removeprefix("train_") for name in sorted(model.capabilities) if name.startswith("train_")]
        raise ModelError(
            f"{model.where}: cannot train only group {group!r} (it can train {', '.join(known) or 'all at once'}); "
            f"export it with train_groups=[{group!r}]"
        )
    return Step("train", trained, only_head)


@dataclass(frozen=True, eq=False)
class GradientOffset:
    """The term `mu w + b` that is added to the gradients.

    Attributes:
        b: A value for each trainable parameter.
        mu: The factor of the proximal term.
    """

    b: Weights
    mu: float

    @classmethod
    def checked(cls, model: TrainableModel, b: Weights | None, mu: float) -> "GradientOffset | None":
        """Return an offset with a copy of `b` (None for zero); None if nothing is added.

        Raises:
            ConfigurationError: `mu` is not finite.
            ModelError: The model's steps take no offset, or `b` does not contain the trainable parameters.
        """
        if not (isinstance(mu, int | float | np.number) and math.isfinite(mu)):
            raise ConfigurationError(f"gradient offset: expected a finite mu, found {shown(mu)}")
        if b is None and mu == 0:
            return None
        if "gradient_offset" not in model.capabilities:
            raise ModelError(
                f"{model.where}: its steps do not support a gradient offset, since they are not plain w - "
                "learning_rate * gradient; export it with gradient_offset=True"
            )
        layout = model.trainable_layout
        if b is None:
            return cls(Weights.zeros(layout), float(mu))
        if b.layout != layout:
            raise ModelError(
                f"{model.where}: a gradient offset consists of the {len(layout.names)} trainable parameters, {layout.size} "
                f"floats; found {len(b.layout.names)} of {b.layout.size}; select the model's trainable_layout"
            )
        return cls(Weights(layout, b.vector.copy()), float(mu))


def steps_at_once(runtime: Runtime, step: Step, offset: GradientOffset | None) -> tuple[int, ...]:
    """Return the step counts that `run_stack` supports, the largest first; none if steps run one by one."""
    return () if _on_host(runtime, offset) else runtime.steps_at_once(step.signature)


def run_stack(
    runtime: Runtime,
    step: Step,
    batches: StackedBatches,
    learning_rates: Sequence[float],
    offset: GradientOffset | None,
) -> list[float]:
    """Run several steps in one call and return their losses; results are bit-for-bit those of single steps."""
    b, mu = (offset.b, offset.mu) if offset else (None, 0.0)
    return runtime.train_at_once(batches, learning_rates, signature=step.signature, b=b, mu=mu)


def run_steps(
    runtime: Runtime,
    step: Step,
    batches: Sequence[Batch],
    learning_rates: Sequence[float],
    offset: GradientOffset | None,
) -> list[float]:
    """Run a step on each batch and return the losses."""
    if offset is not None and _on_host(runtime, offset):
        pairs = zip(batches, learning_rates, strict=True)
        return [_step_and_offset(runtime, step, batch, learning_rate, offset) for batch, learning_rate in pairs]
    b, mu = (offset.b, offset.mu) if offset else (None, 0.0)
    return runtime.train(batches, learning_rates, signature=step.signature, b=b, mu=mu)


def _on_host(runtime: Runtime, offset: GradientOffset | None) -> bool:
    """Return whether the host must add the offset, because the model's steps do not take one."""
    return offset is not None and "set_gradient_offset" not in runtime.model.signatures


def _step_and_offset(runtime: Runtime, step: Step, batch: Batch, learning_rate: float, offset: GradientOffset) -> float:
    """Run one step, add the offset and return the step's loss.

    The host adds it after the step, `w <- w - r (mu w_before + b)`, on the parameters that the step trains. This is exact
    for plain SGD.
    """
    before = runtime.read().select(step.trained)
    [loss] = runtime.train([batch], [learning_rate], signature=step.signature)
    after = runtime.read()
    change = (before * offset.mu + offset.b.select(step.trained)) * learning_rate
    runtime.write(after.replace(after.select(step.trained) - change))
    return loss
