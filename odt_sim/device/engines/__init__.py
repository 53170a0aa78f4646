"""Engines, which run the signatures of a `.tflite` file: their interface, and the choice of one.

| `backend.runtime` | runs files in |
|---|---|
| `litert` | LiteRT's interpreter |
| `compiled` | LiteRT's compiled model |
| `flex` | TensorFlow's interpreter with Flex ops, in a separate process and environment |
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import Any, Literal, Protocol, get_args

from odt_sim.errors import ConfigurationError
from odt_sim.model.weights import Array

RuntimeName = Literal["litert", "compiled", "flex"]

FLEX_MEMORY = 660 << 20
"""The memory in bytes of TensorFlow's process with a small model, measured with TensorFlow 2.19."""


class Engine(Protocol):
    """An instance of a file, with the values of its variables, that runs signatures by name.

    `tests/device/test_engine_conformance.py` has the tests that every engine passes.
    """

    def call(self, signature: str, **inputs: Any) -> dict[str, Array]:
        """Run one signature.

        Args:
            signature: The signature's name.
            **inputs: Its inputs, as arrays of the declared dtypes.

        Returns:
            The outputs by name, as copies.

        Raises:
            ModelError: The inputs do not fit the signature, or this runtime cannot pass them.
            InvocationError: The runtime failed.
        """


StartEngine = Callable[[bytes, str], Engine]
"""Starts an engine with a file's content and its name for errors; raises a `ModelError` if it cannot be loaded."""


@dataclass(frozen=True)
class RuntimeChoice:
    """The runtime of a run; calling it starts an engine.

    Attributes:
        name: A runtime of the table above.
        python: For `flex`, the Python of an environment with TensorFlow 2.19; None for `ODT_SIM_FLEX_PYTHON`, else for
            this one if it has TensorFlow 2.19.
    """

    name: RuntimeName = "litert"
    python: str | None = None

    def __post_init__(self) -> None:
        """Check the settings of a backend."""
        if self.name not in get_args(RuntimeName):
            names = ", ".join(get_args(RuntimeName))
            raise ConfigurationError(f"backend.runtime: expected one of {names}, found {self.name!r}")
        if self.python is not None and self.name != "flex":
            raise ConfigurationError(
                f"backend.runtime_python: expected null with backend.runtime={self.name}, found {self.python}; it "
                "applies only to backend.runtime=flex"
            )

    @property
    def runs_flex(self) -> bool:
        """Whether it runs Flex ops, which LiteRT cannot."""
        return self.name == "flex"

    def __call__(self, content: bytes, where: str) -> Engine:
        """Start an engine; see `StartEngine`.

        The modules are imported here, because a run uses only one of them.
        """
        if self.name == "compiled":
            from odt_sim.device.engines.compiled import CompiledEngine

            return CompiledEngine(content, where)
        if self.name == "flex":
            from odt_sim.device.engines.flex import FlexEngine

            return FlexEngine(content, where, self.python)
        from odt_sim.device.engines.interpreter import InterpreterEngine

        return InterpreterEngine(content, where)


LITERT = RuntimeChoice()

_one_at_a_time = RLock()  # a second thread would save and restore the replaced standard error


@contextmanager
def quiet() -> Iterator[None]:
    """Discard standard error of the process; LiteRT's first interpreter prints a line that no setting turns off."""
    with _one_at_a_time:
        try:
            kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        except OSError:  # standard error is closed
            yield
            return
        try:
            os.dup2(nowhere, 2)
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            os.close(nowhere)
