"""Fixtures of real `.tflite` files, whole and edited."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flatbuffers
import pytest
from ai_edge_litert import schema_py_generated as schema

from odt_sim.model.reading.graph_reader import IDENTIFIER

Change = Callable[[Any], None]


@pytest.fixture(scope="session")
def plain(foreign: Path) -> bytes:
    """A file exported by another tool."""
    return (foreign / "plain.tflite").read_bytes()


@pytest.fixture(scope="session")
def edited() -> Callable[[bytes, Change], bytes]:
    """A function that unpacks a file, changes it and repacks it."""

    def edit(content: bytes, change: Change) -> bytes:
        model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
        change(model)
        builder = flatbuffers.Builder(2 * len(content))
        builder.Finish(model.Pack(builder), file_identifier=IDENTIFIER)
        return bytes(builder.Output())

    return edit
