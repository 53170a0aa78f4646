"""The cases cover Keras' losses, activations and optimizers, and the docs list what the cases cover."""

import inspect

import keras
import pytest
from coverage_table import FAMILIES, PAGE, page

from odt_sim.model.contract.manifest import LOSSES

COVERED = {subject for family in FAMILIES for case in family.cases for subject in case.subjects}
WRAPPERS = {"Optimizer", "OptimizerMap", "MultiOptimizer", "LossScaleOptimizer"}
ALIASES = {"hard_swish", "swish"}
REFUSED = {"sparsemax"}  # it sorts


def test_docs_table_matches_the_cases() -> None:
    text = PAGE.read_text()
    assert page(text) == text, "docs/export.md is stale; run: python tests/export/coverage_table.py"


def test_every_keras_optimizer_is_covered() -> None:
    optimizers = {name for name, kind in vars(keras.optimizers).items() if inspect.isclass(kind)}
    assert optimizers - WRAPPERS - {"ScheduleFreeAdamW"} <= COVERED  # its slots copy the weights


def test_every_keras_activation_is_covered() -> None:
    functions = {name for name, kind in vars(keras.activations).items() if inspect.isfunction(kind)}
    assert functions - {"get", "serialize", "deserialize"} - ALIASES - REFUSED <= COVERED


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_is_covered(loss: str) -> None:
    assert loss.replace("_", "") in {subject.lower() for subject in COVERED}


def test_case_names_are_unique() -> None:
    names = [case.name for family in FAMILIES for case in family.cases]
    assert len(set(names)) == len(names)
