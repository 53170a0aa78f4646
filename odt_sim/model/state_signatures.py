"""Signatures that return and set variables, with types that every LiteRT runtime can pass.

As in exports, see `odt_sim.export.signatures`, signatures take and return integers and booleans as int32.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from odt_sim.model.graph import Variable
from odt_sim.model.surgery import NewSubgraph

CAST = ("bool", "int8", "int16", "int64", "uint16", "uint32")
"""Types of variables that signatures take and return as int32."""

GATHERED = ("bool", "float32", "int8", "int16", "int32", "int64", "uint8")
"""Types of scalars that LiteRT's GATHER supports."""


def add_pair(
    model: Any, names: tuple[str, str], prefix: str, variables: Sequence[Variable], initializers: Iterable[int]
) -> tuple[str, str]:
    """Add a signature that returns variables and one that sets them, and return their names.

    Both run the file's initializers first; otherwise, LiteRT would run them later and reset the variables.
    """
    reader, writer = (NewSubgraph(model, name) for name in names)
    for i, variable in enumerate(variables):
        if i == 0:
            reader.call_once(initializers)
            writer.call_once(initializers)
        reader.output(f"{prefix}{i}", _returned(reader, variable))
        writer.assign(variable, _given(writer, f"{prefix}{i}", variable))
    writer.done()
    for subgraph, name in zip((reader, writer), names, strict=True):
        subgraph.sign(name)
    return names


def _returned(reader: NewSubgraph, variable: Variable) -> int:
    """Return a variable's value in the type of the output."""
    value, dtype = reader.read(variable), _dtype(variable)
    if variable.shape == () and dtype in GATHERED:  # READ_VARIABLE resizes it; CompiledModel would return other memory
        value = reader.gathered(value, dtype)
    return value if _passed(variable) == dtype else reader.cast(value, _passed(variable))


def _given(writer: NewSubgraph, name: str, variable: Variable) -> int:
    """Return a new input, cast to the type of a variable."""
    value = writer.input(name, variable.shape or (), _passed(variable))
    return value if _passed(variable) == _dtype(variable) else writer.cast(value, _dtype(variable))


def _passed(variable: Variable) -> str:
    """Return the type in which signatures pass a variable: its own if int32 cannot represent its initial value."""
    dtype = _dtype(variable)
    if dtype not in CAST:
        return dtype
    initial = np.zeros((), dtype) if variable.initial is None else variable.initial.value()
    return "int32" if np.array_equal(initial, initial.astype(np.int32)) else dtype


def _dtype(variable: Variable) -> str:
    return variable.dtype or "float32"
