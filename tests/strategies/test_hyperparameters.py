"""Hyper-parameters given as Python's and as numpy's numbers."""

from typing import Any

import numpy as np
import pytest

from odt_sim._support.checks import checked, checked_count
from odt_sim.errors import ConfigurationError


@pytest.mark.parametrize("value", [np.int64(3), np.uint8(3), 3])
def test_whole_numbers_of_numpy_become_pythons(value: Any) -> None:
    assert type(checked_count("models", value, 1)) is int
    assert checked_count("models", value, 1) == 3


@pytest.mark.parametrize(("value", "kind"), [(np.float32(0.5), float), (0.5, float), (1, int)])
def test_numbers_of_numpy_become_pythons(value: Any, kind: type) -> None:
    assert type(checked("mu", value, 0)) is kind
    assert checked("mu", value, 0) == value


@pytest.mark.parametrize("value", [True, np.bool_(True), "1", None, 1.5, np.float32(2.0), 0])
def test_what_is_no_count_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^strategy\.models: expected a whole number of at least 1, found "):
        checked_count("models", value, 1)


@pytest.mark.parametrize("value", [True, np.bool_(True), "1", None, 1j, np.float32("nan"), float("inf"), -1])
def test_what_is_no_number_in_range_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^strategy\.mu: expected a number of at least 0, found "):
        checked("mu", value, 0)
