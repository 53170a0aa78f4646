"""Parametrizations with a fast part."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow_except(fast: Collection[Any], values: Iterable[Any]) -> list[Any]:
    """Return the values as parameters, of which all but some are slow."""
    return [value if value in fast else pytest.param(value, marks=pytest.mark.slow) for value in values]
