"""Fixtures of real `.tflite` files, whole and edited."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odt_sim.model.editing.tree import packed, unpacked

Change = Callable[[Any], None]


@pytest.fixture(scope="session")
def plain(foreign: Path) -> bytes:
    """A file exported by another tool."""
    return (foreign / "plain.tflite").read_bytes()


@pytest.fixture(scope="session")
def edited() -> Callable[[bytes, Change], bytes]:
    """A function that unpacks a file, changes it and repacks it."""

    def edit(content: bytes, change: Change) -> bytes:
        model = unpacked(content)
        change(model)
        return packed(model)

    return edit
