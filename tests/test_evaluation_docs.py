"""The page on evaluation names what there is."""

import re
from pathlib import Path

import pytest

from odt_sim.persistence.records import DEVICE_FIGURES, ROUND_FIGURES, DeviceRecord, RoundRecord, columns_of
from odt_sim.persistence.summary import Summary

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "evaluation.md").read_text()


@pytest.mark.parametrize(("file", "test"), re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE))
def test_a_guard_exists(file: str, test: str) -> None:
    assert re.search(rf"^ *def {test}\(", (ROOT / file).read_text(), re.MULTILINE)


def test_every_column_is_defined() -> None:
    fields = {*columns_of(RoundRecord), *columns_of(DeviceRecord), *columns_of(Summary)}
    assert not {*fields, *ROUND_FIGURES, *DEVICE_FIGURES} - set(re.findall(r"`(\w+)`", PAGE))
