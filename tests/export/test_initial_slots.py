"""Optimizers with slots that begin as a function of the weights are refused: a device restores other weights."""

from functools import partial
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops, optimizers

from odt_sim.errors import ExportError
from odt_sim.export import export_model
from odt_sim.export.keras.optimizers import check_initial_slots


class Lookahead(optimizers.SGD):  # type: ignore[misc]  # Keras has no types
    """Slow weights that begin as a copy."""

    def build(self, variables: Any) -> None:
        super().build(variables)
        self.slow = [self.add_variable_from_reference(v, "slow") for v in variables]
        for slow, variable in zip(self.slow, variables, strict=True):
            slow.assign(variable)


class CopiesAtTheFirstStep(optimizers.SGD):  # type: ignore[misc]
    """Slow weights that the first step copies."""

    def build(self, variables: Any) -> None:
        super().build(variables)
        self.slow = [self.add_variable_from_reference(v, "slow") for v in variables]

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        slow = self.slow[self._get_variable_index(variable)]
        slow.assign(ops.where(ops.equal(self.iterations, 0), variable, 0.5 * (slow + variable)))
        super().update_step(gradient, variable, learning_rate)


class Random(optimizers.SGD):  # type: ignore[misc]
    """Slots that begin at random."""

    def build(self, variables: Any) -> None:
        super().build(variables)
        self.noise = [self.add_variable_from_reference(v, "noise", initializer="random_normal") for v in variables]


def checked(make: Any, initializer: str) -> None:
    model = keras.Sequential([layers.Input((4,)), layers.Dense(3, kernel_initializer=initializer, name="last")])
    optimizer, before = make(), model.get_weights()
    optimizer.build(model.trainable_variables)
    check_initial_slots(optimizer, model.trainable_variables, make)
    for weight, value in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, value)


@pytest.mark.parametrize("initializer", ["glorot_uniform", "zeros"])
@pytest.mark.parametrize(("make", "slot"), [(optimizers.ScheduleFreeAdamW, "momentum"), (Lookahead, "slow")])
def test_slots_that_copy_weights_are_refused(make: Any, slot: str, initializer: str) -> None:
    message = (
        rf"^optimizer {make.__name__}: its slot '.*last_kernel_{slot}' starts as a function of the weights, .* AdamW"
    )
    with pytest.raises(ExportError, match=message):
        checked(make, initializer)


@pytest.mark.parametrize("initializer", ["glorot_uniform", "zeros"])
@pytest.mark.parametrize(
    "make",
    [
        partial(optimizers.Adam, amsgrad=True, use_ema=True, gradient_accumulation_steps=2),
        partial(optimizers.Adagrad, initial_accumulator_value=0.5),
        optimizers.Muon,
        CopiesAtTheFirstStep,
        Random,
    ],
)
def test_other_slots_pass_and_the_weights_stay(make: Any, initializer: str) -> None:
    checked(make, initializer)


def test_export_checks_the_slots(tmp_path: Any) -> None:
    model = keras.Sequential([layers.Input((4,)), layers.Dense(3)])
    with pytest.raises(ExportError, match="optimizer ScheduleFreeAdamW: its slot"):
        export_model(model, tmp_path / "m.tflite", loss="mse", optimizer="ScheduleFreeAdamW")
    assert not list(tmp_path.iterdir())
