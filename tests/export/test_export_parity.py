"""After five steps LiteRT and Keras hold the same weights, statistics and optimizer slots."""

from typing import Any

import keras
import pytest
from coverage_table import FAMILIES
from keras import layers
from parity.case import Case
from parity.models import MODELS

from odt_sim.export.parameters import all_layers

CASES = [case for family in FAMILIES if family is not MODELS for case in family.cases]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_litert_trains_as_keras(case: Case, twins: Any) -> None:
    keras.utils.set_random_seed(4)
    model = case.build()
    for kind in (getattr(layers, subject) for subject in case.subjects if hasattr(layers, subject)):
        assert any(isinstance(layer, kind) for layer in all_layers(model)), kind
    twins(model, case.loss(), case.optimizer()).agree()
