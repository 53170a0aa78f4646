"""LiteRT's compiled model: the successor of the interpreter on phones, here on the CPU."""

import atexit
import os
from functools import cache
from math import prod
from typing import Any

import numpy as np
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.environment import Environment, EnvironmentOptions
from ai_edge_litert.tensor_buffer import TensorBuffer

from odt_sim.device.engines import Array, one_line
from odt_sim.device.native_output import quiet
from odt_sim.errors import InvocationError, ModelError

DTYPES = ("bool", "float16", "float32", "int8", "int32", "uint8")
"""What its buffers pass to and from numpy."""

Buffers = dict[str, TensorBuffer]


class CompiledEngine:
    """One compiled model; its signatures share the variables."""

    def __init__(self, content: bytes, where: str) -> None:
        """Load a file; see `StartEngine`."""
        self._where, self._content = where, content  # the native model refers to the bytes
        try:
            with quiet():
                self._model = CompiledModel.from_buffer(content, environment=_environment())
        except (ValueError, RuntimeError) as error:
            raise ModelError(f"{where}: LiteRT's compiled model cannot load it: {one_line(error)}") from error
        self._calls: dict[str, _Call] = {}

    def call(self, signature: str, **inputs: Any) -> dict[str, Array]:
        """Run one signature; see `Engine`."""
        arrays = {name: np.asarray(value) for name, value in inputs.items()}
        shapes = {name: array.shape for name, array in arrays.items()}
        try:
            prepared = self._calls.get(signature)
            if prepared is None or prepared.shapes != shapes:
                prepared = self._calls[signature] = _Call(self._model, signature, shapes, self._where)
            return prepared.run(arrays)
        except (ValueError, RuntimeError) as error:
            kind = InvocationError if isinstance(error, RuntimeError) else ModelError
            raise kind(f"{self._where}: signature {signature!r} failed: {one_line(error)}") from error


class _Call:
    """The buffers of a signature, for inputs of some shapes."""

    def __init__(self, model: CompiledModel, signature: str, shapes: dict[str, tuple[int, ...]], where: str) -> None:
        self.shapes, self._model, self._signature = shapes, model, signature
        if signature not in model.get_signature_list():
            raise ModelError(f"{where}: no signature {signature!r}")
        declared = model.get_input_tensor_details(signature)
        if declared.keys() != shapes.keys():
            raise ModelError(
                f"{where}: signature {signature!r} takes {', '.join(declared) or 'nothing'}; found {', '.join(shapes)}"
            )
        self._dtypes = {name: str(np.dtype(details["dtype"])) for name, details in declared.items()}
        _check_dtypes(self._dtypes, "input", signature, where)
        for name, shape in shapes.items():
            if tuple(declared[name]["shape"]) != shape:
                model.resize_input_tensor_by_name(signature, name, list(shape), strict=False)
        details = model.get_output_tensor_details(signature)
        self._outputs = {name: (tuple(d["shape"]), str(np.dtype(d["dtype"]))) for name, d in details.items()}
        _check_dtypes({name: dtype for name, (_, dtype) in self._outputs.items()}, "output", signature, where)
        self._read = {name: model.create_output_buffer_by_name(signature, name) for name in details}
        self._written = {name: model.create_input_buffer_by_name(signature, name) for name in shapes}

    def run(self, inputs: dict[str, Array]) -> dict[str, Array]:
        for name, array in inputs.items():
            if array.dtype != self._dtypes[name]:
                raise ValueError(f"input {name!r} is {array.dtype}, expected {self._dtypes[name]}")
            self._written[name].write(array)
        self._model.run_by_name(self._signature, self._written, self._read)
        return {
            name: self._read[name].read(prod(shape), np.dtype(dtype)).reshape(shape)
            for name, (shape, dtype) in self._outputs.items()
        }


def _check_dtypes(dtypes: dict[str, str], kind: str, signature: str, where: str) -> None:
    for name, dtype in dtypes.items():
        if dtype not in DTYPES:
            raise ModelError(
                f"{where}: {kind} {name!r} of {signature!r} is {dtype}, which LiteRT's compiled model cannot pass "
                "from Python; use backend.runtime=litert"
            )


@cache
def _environment() -> Environment:
    """Return this process's environment.

    LiteRT prints a line for each of its accelerators when the process exits, which no setting turns off.
    """
    atexit.register(lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 2))
    with quiet():
        return Environment.create(options=EnvironmentOptions())
