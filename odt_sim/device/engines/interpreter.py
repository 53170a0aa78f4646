"""LiteRT's interpreter, the default runtime."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from odt_sim._support.text import first_line
from odt_sim.data.columns import Array
from odt_sim.errors import InvocationError, ModelError, OdtSimError

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
            return self._prepared(signature).run(inputs)
        except (ValueError, RuntimeError) as error:
            raise self._failed(signature, error) from error

    def each(self, signature: str, inputs: Sequence[Mapping[str, Array]], output: str) -> list[Array]:
        """Run one signature once for each of several inputs and return copies of one of its outputs."""
        try:
            return self._prepared(signature).each(inputs, output)
        except (ValueError, RuntimeError) as error:
            raise self._failed(signature, error) from error

    def views(self, signature: str) -> dict[str, Array]:
        """Run a signature without inputs; its outputs are valid until the next call."""
        try:
            return self._prepared(signature).run({}, copied=False)
        except (ValueError, RuntimeError) as error:
            raise self._failed(signature, error) from error

    def place(self, signature: str, name: str) -> Array | None:
        """Return a view of an input, to be written before the signature's next call, which then omits this input.

        Returns:
            None if the next call needs all inputs.
        """
        prepared = self._calls.get(signature)
        return None if prepared is None else prepared.place(name)

    def _prepared(self, signature: str) -> "InterpreterCall":
        prepared = self._calls.get(signature)
        if prepared is None:
            prepared = self._calls[signature] = InterpreterCall(self._interpreter.get_signature_runner(signature))
        return prepared

    def _failed(self, signature: str, error: ValueError | RuntimeError) -> OdtSimError:
        kind = InvocationError if isinstance(error, RuntimeError) else ModelError
        return kind(f"{self._where}: signature {signature!r} failed: {first_line(error)}")


class InterpreterCall:
    """A signature and the shapes of its last inputs.

    LiteRT's runner resizes its inputs and allocates its tensors in each call, a third of a small call's time. So calls
    bypass it, through attributes that another release of LiteRT may lack.
    """

    def __init__(self, runner: Any) -> None:
        """Prepare calls of a `SignatureRunner`."""
        self._runner = runner
        self._shapes: dict[str, tuple[int, ...]] | None = None
        self._placed: dict[str, tuple[int, ...]] = {}  # inputs that were written to
        try:
            self._native, self._subgraph = runner._interpreter_wrapper, runner._subgraph_index
            self._interpreter = runner._interpreter
            self._inputs, self._outputs = runner._inputs, list(runner._outputs)
        except AttributeError:
            self._native = None

    def place(self, name: str) -> Array | None:
        """Return a view of an input; see `InterpreterEngine.place`."""
        if self._native is None or self._shapes is None:
            return None
        self._placed[name] = self._shapes[name]
        return self._view(self._inputs[name])

    def each(self, inputs: Sequence[Mapping[str, Array]], output: str) -> list[Array]:
        """Run the signature once for each of several inputs and return copies of one output; see `run`.

        A long call evicts Python's own code and data from the processor's caches, so as little code as possible runs
        between two calls.
        """
        shapes, native, subgraph = self._shapes, self._native, self._subgraph
        alike = all({name: array.shape for name, array in given.items()} == shapes for given in inputs)
        if native is None or self._placed or not alike:
            return [self.run(given)[output] for given in inputs]
        self._shapes = None  # after a failed call, the next one allocates again
        tensor, pairs = dict(self._outputs)[output], [[(self._inputs[n], a) for n, a in own.items()] for own in inputs]
        outputs = []
        for of_call in pairs:
            for index, array in of_call:
                self._set(index, array)
            native.Invoke(subgraph)
            outputs.append(native.GetTensor(tensor, subgraph))
        self._shapes = shapes
        return outputs

    def run(self, inputs: Mapping[str, Array], *, copied: bool = True) -> dict[str, Array]:
        """Run the signature; raises what LiteRT raises.

        Args:
            inputs: Its inputs by name.
            copied: Whether to copy the outputs; else they may be views, valid until the interpreter's next call.
        """
        if self._native is None:
            return dict(self._runner(**inputs))
        given, known = {name: array.shape for name, array in inputs.items()}, self._shapes
        shapes = self._placed | given if self._placed else given
        self._placed, self._shapes = {}, None  # after a failed call, the next one allocates again
        if shapes != known:
            self._allocate(given)
        for name, array in inputs.items():
            self._set(self._inputs[name], array)
        self._native.Invoke(self._subgraph)
        if copied:
            outputs = {name: self._native.GetTensor(tensor, self._subgraph) for name, tensor in self._outputs}
        else:
            outputs = {name: self._view(tensor) for name, tensor in self._outputs}
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
            place = self._view(tensor)
            if place.dtype == array.dtype:  # LiteRT refuses other dtypes, numpy would convert them
                np.copyto(place, array)
                return
        self._native.SetTensor(tensor, array, self._subgraph)

    def _view(self, tensor: int) -> Array:
        """Return a view of a tensor, which is valid until the interpreter's next call."""
        view: Array = self._native.tensor(self._interpreter, tensor, self._subgraph)
        return view
