"""LiteRT's compiled model: the successor of the interpreter on phones, here on the CPU."""

import ctypes
import os
from collections.abc import Mapping
from functools import cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.cpu_options import CpuOptions
from ai_edge_litert.environment import Environment, EnvironmentOptions
from ai_edge_litert.options import Options
from ai_edge_litert.tensor_buffer import TensorBuffer

from odt_sim._support.text import first_line
from odt_sim.data.store.columns import Array
from odt_sim.device.engines import quiet
from odt_sim.errors import InvocationError, ModelError
from odt_sim.model.editing.tree import with_computed_outputs

DTYPES = ("bool", "float16", "float32", "int8", "int32", "uint8")
"""The dtypes that the model's buffers pass to and from numpy."""


class CompiledEngine:
    """One compiled model, single-threaded; its signatures share the variables."""

    def __init__(self, content: bytes, where: str) -> None:
        """Load a file; see `StartEngine`.

        Args:
            content: The file's bytes.
            where: Its name, for errors.
        """
        self._where = where
        cpu = CpuOptions(num_threads=1)
        try:
            self._content = with_computed_outputs(content)  # the native model refers to the bytes
            with quiet():
                self._model = CompiledModel.from_buffer(
                    self._content, environment=_environment(os.getpid()), options=Options(cpu_options=cpu)
                )
        except (ValueError, RuntimeError) as error:
            raise ModelError(f"{where}: LiteRT's compiled model cannot load it: {first_line(error)}") from error
        self._calls: dict[str, _Call] = {}

    def call(self, signature: str, **inputs: Any) -> dict[str, Array]:
        """Run one signature; see `Engine`."""
        try:
            return self._outputs(signature, {name: np.asarray(value) for name, value in inputs.items()})
        except (ValueError, RuntimeError) as error:
            kind = InvocationError if isinstance(error, RuntimeError) else ModelError
            raise kind(f"{self._where}: signature {signature!r} failed: {first_line(error)}") from error

    def _outputs(self, signature: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        shapes = {name: array.shape for name, array in inputs.items()}
        prepared = self._calls.get(signature)
        if prepared is not None and prepared.shapes == shapes:
            return prepared.run(inputs)
        with quiet():  # LiteRT's first buffer and first run print lines, too
            self._calls[signature] = _Call(self._model, signature, shapes, self._where)
            outputs = self._calls[signature].run(inputs)
        _end_silently()
        return outputs


class _Input(NamedTuple):
    name: str
    dtype: np.dtype[Any]
    buffer: TensorBuffer


class _Output(NamedTuple):
    name: str
    shape: tuple[int, ...]
    size: int
    dtype: np.dtype[Any]
    buffer: TensorBuffer


class _Call:
    """The buffers of a signature, for inputs of some shapes."""

    def __init__(self, model: CompiledModel, signature: str, shapes: dict[str, tuple[int, ...]], where: str) -> None:
        self.shapes, self._model, self._index = shapes, model, model.get_signature_index(signature)
        order = model.get_signature_list().get(signature)
        if order is None:
            raise ModelError(f"{where}: no signature {signature!r}")
        declared = model.get_input_tensor_details(signature)
        if declared.keys() != shapes.keys():
            raise ModelError(
                f"{where}: signature {signature!r} takes {', '.join(declared) or 'nothing'}; found {', '.join(shapes)}"
            )
        _check_dtypes(declared, "input", signature, where)
        for name, shape in shapes.items():
            if tuple(declared[name]["shape"]) != shape:
                model.resize_input_tensor_by_name(signature, name, list(shape), strict=False)
        details = model.get_output_tensor_details(signature)
        _check_dtypes(details, "output", signature, where)
        self._inputs = [
            _Input(name, np.dtype(declared[name]["dtype"]), model.create_input_buffer_by_name(signature, name))
            for name in order["inputs"]
        ]
        self._outputs = [
            _Output(name, shape, prod(shape), dtype, model.create_output_buffer_by_name(signature, name))
            for name in order["outputs"]
            for shape, dtype in [(tuple(details[name]["shape"]), np.dtype(details[name]["dtype"]))]
        ]
        self._written = [tensor.buffer for tensor in self._inputs]
        self._read = [tensor.buffer for tensor in self._outputs]

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        for name, dtype, buffer in self._inputs:
            array = inputs[name]
            if array.dtype != dtype:
                raise ValueError(f"input {name!r} is {array.dtype}, expected {dtype}")
            buffer.write(array)
        self._model.run_by_index(self._index, self._written, self._read)
        return {name: buffer.read(size, dtype).reshape(shape) for name, shape, size, dtype, buffer in self._outputs}


def _check_dtypes(tensors: Mapping[str, Any], kind: str, signature: str, where: str) -> None:
    for name, details in tensors.items():
        dtype = str(details["dtype"])  # "unknown" for strings, which have no numpy dtype here
        if dtype not in DTYPES:
            raise ModelError(
                f"{where}: {kind} {name!r} of {signature!r} is {dtype}, which LiteRT's compiled model cannot pass "
                "from Python; use backend.runtime=litert"
            )


@cache
def _environment(process: int) -> Environment:
    """Return the environment of a process, which forks cannot use; it is never freed, because that prints lines."""
    with quiet():
        environment = Environment.create(options=EnvironmentOptions())
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(environment))
    return environment


@cache
def _end_silently() -> None:
    """Have standard error closed at process exit, after Python's own exit.

    LiteRT then frees its own environment, and prints a line for each accelerator, which no setting turns off.
    """
    native = ctypes.CDLL(None)
    native.__cxa_atexit(native.close, ctypes.c_void_p(2), None)
