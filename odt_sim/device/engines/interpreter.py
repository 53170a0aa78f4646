"""LiteRT's interpreter, the default runtime."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from odt_sim._support.text import first_line
from odt_sim.data.store.columns import Array
from odt_sim.errors import InvocationError, ModelError

LARGE = 1 << 14
"""Bytes from which numpy copies an input: LiteRT would hold Python's lock meanwhile, and copy a read-only one twice."""


class InterpreterEngine:
    """One single-threaded interpreter."""

    def __init__(self, content: bytes, where: str) -> None:
        """Load a file; see `StartEngine`."""
        self._where = where
        try:
            self._interpreter = Interpreter(model_content=content, num_threads=1)
        except (ValueError, RuntimeError) as error:
            raise ModelError(f"{where}: LiteRT cannot load it: {first_line(error)}") from error
        self._calls: dict[str, InterpreterCall] = {}

    def call(self, signature: str, **inputs: Any) -> dict[str, Array]:
        """Run one signature; see `Engine`."""
        try:
            prepared = self._calls.get(signature)
            if prepared is None:
                prepared = self._calls[signature] = InterpreterCall(self._interpreter.get_signature_runner(signature))
            return prepared.run(inputs)
        except (ValueError, RuntimeError) as error:
            kind = InvocationError if isinstance(error, RuntimeError) else ModelError
            raise kind(f"{self._where}: signature {signature!r} failed: {first_line(error)}") from error


class InterpreterCall:
    """A signature and the shapes of its last inputs.

    LiteRT's runner resizes its inputs and allocates its tensors in each call, a third of a small call's time. So calls
    bypass it, through attributes that another release of LiteRT may lack.
    """

    def __init__(self, runner: Any) -> None:
        """Prepare calls of a `SignatureRunner`."""
        self._runner = runner
        self._shapes: dict[str, tuple[int, ...]] | None = None
        try:
            self._native, self._subgraph = runner._interpreter_wrapper, runner._subgraph_index
            self._interpreter = runner._interpreter
            self._inputs, self._outputs = runner._inputs, list(runner._outputs)
        except AttributeError:
            self._native = None

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run the signature and return copies of its outputs; raises what LiteRT raises."""
        if self._native is None:
            return dict(self._runner(**inputs))
        shapes, allocated = {name: array.shape for name, array in inputs.items()}, self._shapes
        self._shapes = None  # after a failed call, the next one allocates again
        if shapes != allocated:
            self._allocate(shapes)
        for name, array in inputs.items():
            self._set(self._inputs[name], array)
        self._native.Invoke(self._subgraph)
        outputs = {name: self._native.GetTensor(tensor, self._subgraph) for name, tensor in self._outputs}
        self._shapes = shapes
        return outputs

    def _allocate(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Allocate the tensors of a call with inputs of the given shapes.

        LiteRT's runner also resizes inputs that already have their shape, and on ARM, resizing a scalar crashes.
        """
        declared = self._runner.get_input_details()
        if shapes.keys() != declared.keys():
            raise ValueError(f"takes {', '.join(declared) or 'no inputs'}, found {', '.join(shapes) or 'none'}")
        for name, shape in shapes.items():
            if tuple(declared[name]["shape"]) != shape:
                self._native.ResizeInputTensor(self._inputs[name], np.array(shape, np.int32), False, self._subgraph)
        self._native.AllocateTensors(self._subgraph)

    def _set(self, tensor: int, array: Array) -> None:
        if array.nbytes >= LARGE:
            view = self._native.tensor(self._interpreter, tensor, self._subgraph)
            if view.dtype == array.dtype:  # LiteRT refuses other dtypes, numpy would convert them
                np.copyto(view, array)
                return
        self._native.SetTensor(tensor, array, self._subgraph)
