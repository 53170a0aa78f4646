"""Fixtures of the Flex tests, which need TensorFlow 2.19: `make test-flex`."""

from pathlib import Path

import pytest
import tensorflow as tf
from flex_model import FlexModel, batches, export, small_cnn

if not tf.__version__.startswith("2.19."):
    raise pytest.UsageError(f"tests/flex: expected TensorFlow 2.19, found {tf.__version__}; run: make test-flex")


@pytest.fixture(scope="session")
def cnn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a small CNN with Adam."""
    return export(small_cnn(), tmp_path_factory.mktemp("flex"), flavour="flex")


@pytest.fixture
def trained(cnn: Path) -> FlexModel:
    """Return the CNN after three steps."""
    model = FlexModel(cnn)
    for batch in batches(small_cnn(), 3):
        model.train(batch)
    return model
