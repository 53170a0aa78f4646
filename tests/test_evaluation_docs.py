"""The page on evaluation names what there is."""

import re
from pathlib import Path

import pytest

from odt_sim.persistence.records import DEVICE_KEYS
from odt_sim.persistence.summary import summarize
from odt_sim.simulation.evaluation import PREFIXES

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "evaluation.md").read_text()


@pytest.mark.parametrize(("file", "test"), re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE))
def test_a_guard_exists(file: str, test: str) -> None:
    assert re.search(rf"^ *def {test}\(", (ROOT / file).read_text(), re.MULTILINE)


def test_every_column_is_defined() -> None:
    summary = summarize([], [], strategy="local", seed=0, task="regression", cohort=None)
    expected = {*summary, *DEVICE_KEYS, "adapted_m", "others_m", "state_bytes", "validation_devices"}
    expected |= {f"{prefix}m" for prefix in PREFIXES if prefix != "deploy_"}
    assert not expected - set(re.findall(r"`(\w+)`", PAGE))
