"""The check of one export: its rows, the comparison and the error."""

import warnings
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from odt_sim._support.text import one_line
from odt_sim.errors import ExportError, ExportWarning
from odt_sim.export.emit.signatures import Program, Signatures, handle
from odt_sim.export.keras.own_steps import own_method
from odt_sim.export.lowering import Trace
from odt_sim.export.lowering.ops.random import OTHER_NUMBERS
from odt_sim.export.lowering.trace import Accesses
from odt_sim.export.self_check.agreement import Disagreement, Draw, disagreement
from odt_sim.export.self_check.file_side import FileSide
from odt_sim.export.self_check.function_side import FunctionSide, parts_of
from odt_sim.export.self_check.keras_side import KerasSide
from odt_sim.export.self_check.locating import first_counting_padding, first_parting
from odt_sim.export.self_check.rows import Rows
from odt_sim.export.self_check.side import Array, CannotRun, Part, Reference
from odt_sim.export.self_check.torch_side import TorchSide

RATE = 0.05
"""The learning rate of plain steps, which makes the changes of weights large compared with their rounding."""

OPEN_ROWS = 8
"""The rows of a full batch if the file takes any number."""

SHARE, LEAST_SECONDS = 0.2, 1.0
"""The check's share of an export's time, and its least time; the full batch is left out for models that exceed both."""

ALONE = "compute it from each example separately, with the batch as the first axis"


@dataclass(frozen=True)
class KerasExport:
    """An exported file and what it came from.

    Attributes:
        content: The file's bytes.
        program: The traced functions that became its signatures.
        reference: The model.
        rows: The source of rows.
        batch_size: The rows of its batches; None for any number.
        padding_counts: Whether the model is known to count padding rows, of which a warning informs.
    """

    content: bytes
    program: Program
    reference: KerasSide
    rows: Rows
    batch_size: int | None
    padding_counts: bool

    def parts(self, number: int, positive: bool) -> list[Part]:
        """Return the calls of a draw: inference, a step on a partial batch, and one on a full batch."""
        random, size = np.random.default_rng(number), self.batch_size or OPEN_ROWS
        training = self.reference.training
        rate = RATE if isinstance(training.optimizer, keras.optimizers.SGD) else float(training.optimizer.learning_rate)
        declared = training.terms.declared

        def part(signature: str, title: str, rows: int, weights: Any, padded_to: int | None = None) -> Part:
            drawn = self.rows.drawn(rows, random, positive=positive)
            further: dict[str, Array] = {"learning_rate": np.array(rate, np.float32), "mu": np.zeros((), np.float32)}
            inputs = {**drawn, "sample_weight": np.asarray(weights, np.float32)}
            inputs |= {each.name: each.filled(rows) for each in declared if each.of_rows}
            further |= {each.name: each.filled(rows) for each in declared if not each.of_rows}
            return Part(signature, title, inputs, further, rows, padded_to, trains=signature == "train")

        partial = (size + 1) // 2
        padded = self.batch_size if partial < size else None
        title = f"{partial} rows" + (f", padded to {size}" if padded else "")
        parts = [part("infer", f"inference of {title}", partial, np.ones(partial), padded)]
        if partial < size and not (self.batch_size and self.padding_counts):
            parts.append(part("train", f"a step on {title}", partial, np.ones(partial), padded))
        parts.append(part("train", f"a step on {size} rows", size, random.uniform(0.5, 1.5, size)))
        return [each for each in parts if not self.draws_otherwise(each.signature)]

    def draws_otherwise(self, signature: str) -> bool:
        """Return whether a signature draws other numbers than Keras, as it does for `tf.random`."""
        trace, keras_handles = self.program.traces[signature], set(map(handle, self.reference.of_keras()))
        states = {handle(v) for v in self.program.generators} - keras_handles
        return draws_other_numbers(trace) or not states.isdisjoint(trace.variables.values())


def draws_other_numbers(trace: Trace) -> bool:
    """Return whether TensorFlow draws other numbers than the file for a trace."""
    return any(op.type in OTHER_NUMBERS for op in trace.concrete.graph.get_operations())


def check_keras_export(export: KerasExport, seconds: float) -> None:
    """Check that a file computes what its Keras model or PyTorch module computes.

    Args:
        export: The file and the model, whose variables are the same afterwards.
        seconds: The time that the export has taken.

    Raises:
        ExportError: It does not; the error names the first op at which they part.
    """
    name = f"model {export.reference.model.name!r}"
    if export.draws_otherwise("train"):
        warnings.warn(
            f"{name}: its training steps were not compared with Keras, because the file draws other random numbers, of the "
            "same distribution; keras.random.normal and uniform with a SeedGenerator draw the same",
            ExportWarning,
            stacklevel=4,
        )
        if export.draws_otherwise("infer"):
            return
    _check(name, export.content, export.program, export.reference, export.parts, seconds, _advice(export.reference))


def _advice(reference: KerasSide) -> str:
    """Return what to do if padding counts."""
    if isinstance(reference, TorchSide):
        return ALONE  # its graph fixes the number of rows
    method = own_method(reference.model)
    weighted = f"use sample_weight in every term of {type(reference.model).__name__}.{method}, or " if method else ""
    return f"{weighted}export with batch_size=None (model.batch_size=null), which needs no padding"


def check_functions(name: str, content: bytes, program: Program, signatures: Signatures, seconds: float) -> None:
    """Check that a file computes what the TensorFlow functions compute that it came from.

    Args:
        name: The model's name, for errors.
        content: The file's bytes.
        program: The functions.
        signatures: The emitted signatures.
        seconds: The time that the export has taken.

    Raises:
        ExportError: It does not; the error names the first op at which they part.
    """
    accesses = {
        key: Accesses.of(trace, {handle(v) for v in program.generators}) for key, trace in program.traces.items()
    }
    trains = {key: access.trains for key, access in accesses.items() if access.infers or access.trains}
    trains = {key: value for key, value in trains.items() if not draws_other_numbers(program.traces[key])}
    if not any(trains.values()):
        return
    reference = FunctionSide(program, program.variables_by_name(signatures.slots))

    def parts(number: int, positive: bool) -> list[Part]:
        return parts_of(program.traces, trains, OPEN_ROWS, number, positive)

    _check(name, content, program, reference, parts, seconds, ALONE)


def _check(
    name: str,
    content: bytes,
    program: Program,
    reference: Reference,
    draw: Draw,
    seconds: float,
    padding_advice: str,
) -> None:
    try:
        differences = disagreement(lambda: FileSide(content), reference, draw, max(SHARE * seconds, LEAST_SECONDS))
    except CannotRun as error:
        warnings.warn(
            f"{name}: the file was not compared with the model, which does not train on random rows "
            f"({one_line(error)[:150]}); pass a batch of your data as example=(x, y)",
            ExportWarning,
            stacklevel=6,
        )
        return
    if differences is not None:
        raise _error(name, program, reference, differences, padding_advice)


def _error(
    name: str, program: Program, reference: Reference, differences: Disagreement, padding_advice: str
) -> ExportError:
    parts = differences.parts
    part, worst = parts[-1], max(differences.differing, key=lambda result: result.error / max(result.size, 1e-30))
    try:
        where = first_parting(program, reference, parts)
        padding = None if where or part.padded_to is None else first_counting_padding(program, reference, parts)
    finally:
        reference.reset()
    share = worst.error / max(worst.size, 1e-30)
    what = f"{worst.name} after {part.title} by {share:.2g} of its {'change' if part.trains else 'size'}"
    if where is None and part.padded_to is not None:
        return ExportError(
            f"{name}: rows that pad a partial batch count{f', first {padding}' if padding else ''}: the file differs from "
            f"the model in {what}; {padding_advice}"
        )
    return ExportError(
        f"{name}: the file differs from the model{f', first {where}' if where else ''}: in {what}; replace this layer or op, "
        "or write the unchecked file with check=False (model.check=false), and please report it with the model"
    )
