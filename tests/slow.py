"""Parametrizations with a fast part."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow_except(fast: Collection[Any], values: Iterable[Any]) -> list[Any]:
    """Return the values as test parameters, all but some marked slow; tuples are values of several parameters."""

    def slow(value: Any) -> Any:
        return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)

    return [value if value in fast else slow(value) for value in values]
