"""LiteRT's interpreter, the default runtime."""

from typing import Any

from ai_edge_litert.interpreter import Interpreter, SignatureRunner

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
        self._runners: dict[str, SignatureRunner] = {}

    def call(self, signature: str, **inputs: Any) -> dict[str, Array]:
        """Run one signature; see `Engine`."""
        runner = self._runners.get(signature)
        if runner is None:
            runner = self._runners[signature] = self._interpreter.get_signature_runner(signature)
        try:
            outputs: dict[str, Array] = runner(**inputs)
        except (ValueError, RuntimeError) as error:
            kind = InvocationError if isinstance(error, RuntimeError) else ModelError
            raise kind(f"{self._where}: signature {signature!r} failed: {one_line(error)}") from error
        return outputs
