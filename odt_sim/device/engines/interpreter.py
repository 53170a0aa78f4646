"""LiteRT's interpreter, the default runtime."""

from typing import Any

from ai_edge_litert.interpreter import Interpreter

from odt_sim.device.engines import Array, one_line
from odt_sim.errors import InvocationError, ModelError


class InterpreterEngine:
    """One single-threaded interpreter."""

    def __init__(self, content: bytes, where: str) -> None:
        """Load a file; see `StartEngine`."""
        self._where = where
        try:
            self._interpreter = Interpreter(model_content=content, num_threads=1)
        except (ValueError, RuntimeError) as error:
            raise ModelError(f"{where}: LiteRT cannot load it: {one_line(error)}") from error
        self._calls: dict[str, InterpreterCall] = {}

    def call(self, signature: str, **inputs: Any) -> dict[str, Array]:
        """Run one signature; see `Engine`."""
        prepared = self._calls.get(signature)
        if prepared is None:
            prepared = self._calls[signature] = InterpreterCall(self._interpreter.get_signature_runner(signature))
        try:
            return prepared.run(inputs)
        except (ValueError, RuntimeError) as error:
            kind = InvocationError if isinstance(error, RuntimeError) else ModelError
            raise kind(f"{self._where}: signature {signature!r} failed: {one_line(error)}") from error


class InterpreterCall:
    """A signature and the shapes of its last inputs.

    LiteRT's runner resizes its inputs and allocates its tensors in each call, a third of a small call's time, so a call
    with the shapes of the last one goes past it, by attributes that another release of LiteRT may lack.
    """

    def __init__(self, runner: Any) -> None:
        """Prepare calls of a `SignatureRunner`."""
        self._runner = runner
        self._shapes: dict[str, tuple[int, ...]] | None = None
        try:
            self._native, self._subgraph = runner._interpreter_wrapper, runner._subgraph_index
            self._inputs, self._outputs = runner._inputs, list(runner._outputs)
        except AttributeError:
            self._native = None

    def run(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Run the signature; raises what LiteRT raises."""
        if self._native is None:
            return dict(self._runner(**inputs))
        shapes, known = {name: array.shape for name, array in inputs.items()}, self._shapes
        self._shapes = None  # a call that fails declares nothing for the next one
        outputs = self._run(inputs) if shapes == known else self._runner(**inputs)
        self._shapes = shapes
        return outputs

    def _run(self, inputs: dict[str, Array]) -> dict[str, Array]:
        for name, array in inputs.items():
            self._native.SetTensor(self._inputs[name], array, self._subgraph)
        self._native.Invoke(self._subgraph)
        return {name: self._native.GetTensor(tensor, self._subgraph) for name, tensor in self._outputs}
