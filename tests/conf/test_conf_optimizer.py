"""The optimizer of every shipped model is changed as its file says."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from odt_sim.cli import build as config
from odt_sim.cli.overrides import composed

MODELS = sorted(path.stem for path in (Path(__file__).parents[2] / "conf" / "model").glob("*.yaml"))
KEEP_MOMENTUM = ("mobilenet", "mobilenet_transfer", "mobilenet_v2", "resnet8")


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("tflite", *KEEP_MOMENTUM)])
def test_a_name_is_enough_and_settings_are_added(name):
    node = composed([f"model={name}", "model.optimizer.name=Adamax", "+model.optimizer.weight_decay=0.01"])
    assert OmegaConf.to_container(node.model.optimizer) == {"name": "Adamax", "weight_decay": 0.01}


@pytest.mark.parametrize("name", KEEP_MOMENTUM)
def test_where_momentum_is_set_it_is_taken_out(name):
    node = composed([f"model={name}", "model.optimizer.name=Adam", "~model.optimizer.momentum"])
    assert OmegaConf.to_container(node.model.optimizer) == {"name": "Adam"}


@pytest.mark.parametrize(
    ("override", "slots"), [("model.optimizer.name=Adam", 5), ("+model.optimizer.momentum=0.9", 2)]
)
def test_the_model_is_exported_with_it(override, slots):
    model = config.model(composed(["model=softmax", override]))
    assert len(model.slots) == slots
