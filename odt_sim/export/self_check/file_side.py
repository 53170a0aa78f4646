"""The exported file as a side of the check."""

import os
from functools import cached_property
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from odt_sim._support.text import first_line
from odt_sim.device.batches import padded
from odt_sim.device.engines import quiet
from odt_sim.errors import ExportError
from odt_sim.export.self_check.side import Array, Part


class FileSide:
    """A file in a new interpreter of LiteRT."""

    def __init__(self, content: bytes, **options: Any) -> None:
        """Load a file.

        Args:
            content: The file's bytes.
            **options: Further arguments of the interpreter.
        """
        self._content, self._options = content, options

    @cached_property
    def interpreter(self) -> Interpreter:
        """The interpreter, on all cores."""
        with quiet():
            return Interpreter(model_content=self._content, num_threads=os.cpu_count(), **self._options)

    def run(self, part: Part) -> dict[str, Array]:
        """Run a signature with those of a part's inputs that it takes; see `Side`."""
        try:
            with quiet():
                runner = self.interpreter.get_signature_runner(part.signature)
                declared = runner.get_input_details()
                values = {
                    name: np.asarray(value_of(part, name), details["dtype"]) for name, details in declared.items()
                }
                outputs = {name: np.array(value) for name, value in runner(**values).items()}
        except (RuntimeError, ValueError) as error:
            raise ExportError(f"LiteRT cannot run `{part.signature}` of the file: {first_line(error)}") from error
        return {name: without_padding(value, part) for name, value in outputs.items()}

    def states(self) -> dict[str, Any]:
        """Return the weights and slots; see `Side`."""
        readers = [key for key in ("parameters", "optimizer_state") if key in self.interpreter.get_signature_list()]
        return {name: value for key in readers for name, value in self.interpreter.get_signature_runner(key)().items()}


def value_of(part: Part, name: str) -> Array:
    """Return an input of a part, padded as devices pad a batch."""
    if name in part.further:
        return part.further[name]
    values, size = part.inputs[name], part.padded_to
    if size is None:
        return values
    if name != "sample_weight":
        return padded(values, size)
    return np.concatenate([values * np.float32(size / part.rows), np.zeros(size - part.rows, np.float32)])


def without_padding(output: Array, part: Part) -> Array:
    """Return the rows of an output that are no padding."""
    return output[: part.rows] if part.padded_to in output.shape[:1] else output
