"""Whether a file and its model agree, up to rounding.

Two correct implementations in float32 differ: they add in another order, a ReLU's input is nearly 0, a net is unstable. So
a difference is an error only if it is larger than `NOISE` times what the model itself differs by when its inputs and weights
are moved by one unit in the last place, and only if it shows on `DRAWS` draws of rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from odt_sim.export.self_check.side import Array, CannotRun, Part, Reference, Side, before_last

EXACT = 1e-4
"""The part of a result, or of a variable's change, up to which a difference needs no further examination."""

LEAST_CHANGE = 1e-6
"""The part of the largest change of any variable below which a change is rounding, such as that of a bias before a norm."""

NOISE = 10.0
DRAWS = 3
EPSILON = float(np.finfo(np.float32).eps)

Draw = Callable[[int, bool], Sequence[Part]]
"""Returns the parts of a draw by its number; the flag restricts rows to positive values (see `rows.Rows`)."""


class Result(NamedTuple):
    """A result of both sides: the norms of its difference and of its size or change, and what rounding alone adds."""

    name: str
    error: float
    size: float
    rounding: float


@dataclass(frozen=True)
class Disagreement:
    """The results in which a file and its model differ.

    Attributes:
        parts: The calls up to the first one with such a result.
        differing: The results that differ: outputs by their sizes, weights and slots by their changes.
        expected: All results of the model.
        sizes: The sizes or changes of all results.
    """

    parts: tuple[Part, ...]
    differing: tuple[Result, ...]
    expected: Mapping[str, Any]
    sizes: Mapping[str, float]


def disagreement(file: Callable[[], Side], reference: Reference, draw: Draw, seconds: float) -> Disagreement | None:
    """Return the differences between a file and its model that rounding does not explain; None if there are none.

    Args:
        file: Opens the file anew.
        reference: The model; it is reset afterwards.
        draw: The rows.
        seconds: The time after which no further part of the first draw starts, except for its first training step.

    Raises:
        CannotRun: The model trains on no drawn rows.
    """
    lasting: Disagreement | None = None
    try:
        for number in range(DRAWS):
            differences = _of_draw(file, reference, draw, number, np.inf if number else seconds)
            unexplained = None if differences is None else _unexplained(reference, differences)
            lasting = unexplained if not number or lasting is None else _in_both(lasting, unexplained)
            if lasting is None:
                break
    finally:
        reference.reset()
    return lasting


def _in_both(one: Disagreement, other: Disagreement | None) -> Disagreement | None:
    """Return the later of two disagreements, with the results in which both are."""
    if other is None or one.parts[-1].title != other.parts[-1].title:
        return None
    names = {result.name for result in one.differing}
    return _with(other, [result for result in other.differing if result.name in names])


def _with(whole: Disagreement, differing: Sequence[Result]) -> Disagreement | None:
    return replace(whole, differing=tuple(differing)) if differing else None


def _of_draw(
    file: Callable[[], Side], reference: Reference, draw: Draw, number: int, seconds: float
) -> Disagreement | None:
    """Return the differences of one draw, without the parts that the model itself cannot run."""
    problem = CannotRun("it draws other numbers")
    for positive in (False, True):
        parts = list(draw(number, positive))
        trains = any(part.trains for part in parts)
        while any(part.trains or not trains for part in parts):
            try:
                return _differing(file(), reference, parts, seconds)
            except CannotRun as error:
                problem, parts = error, [part for part in parts if part is not error.part]
    raise problem


def _differing(file: Side, reference: Reference, parts: Sequence[Part], seconds: float) -> Disagreement | None:
    """Run the parts one after another on both sides, and return the differences of the first part with any."""
    reference.reset()
    before, end = reference.states(), perf_counter() + seconds
    for i, part in enumerate(parts):
        if perf_counter() > end and any(earlier.trains for earlier in parts[:i]):
            break
        expected, after = _run(reference, part), reference.states()
        computed = file.run(part)
        results = [_output(name, computed[name], value) for name, value in expected.items()]
        states = file.states() if part.trains else {}
        results += _variables(states, before, after)
        differing = [result for result in results if not result.error <= EXACT * result.size + result.rounding]
        rounding = reference.rounding() if differing and part.trains else {}
        differing = [result for result in differing if not _by_rounding(result, rounding, states, after)]
        if differing:
            sizes = {result.name: result.size for result in results}
            return Disagreement(tuple(parts[: i + 1]), tuple(differing), {**after, **expected}, sizes)
        before = after
    return None


def _by_rounding(
    result: Result, rounding: Mapping[str, Array], computed: Mapping[str, Any], after: Mapping[str, Any]
) -> bool:
    """Return whether a variable differs only where its gradient was rounding."""
    if result.name not in rounding:
        return False
    error = _norm(np.where(rounding[result.name], 0.0, computed[result.name] - np.asarray(after[result.name])))
    return error <= EXACT * result.size + result.rounding


def _run(reference: Reference, part: Part) -> dict[str, Array]:
    try:
        outputs = reference.run(part)
    except CannotRun as error:
        raise CannotRun(str(error), part) from error
    if not all(np.isfinite(value).all() for value in outputs.values()):
        raise CannotRun("its results are not finite", part)
    return outputs


def _output(name: str, computed: Array, expected: Array) -> Result:
    return Result(name, _norm(np.subtract(computed, expected, dtype=np.float64)), _norm(expected), 0.0)


def _variables(computed: Mapping[str, Array], before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Result]:
    """Return the results for all variables, by their changes."""
    results, scales = [], []
    common = {name: value for name, value in computed.items() if name in after}
    for name, value in common.items():
        old, new = np.asarray(before[name]), np.asarray(after[name])
        if new.dtype.kind != "f":  # counts and flags
            value, old, new = (array.astype(np.float64) for array in (value, old, new))
        size = _norm(new - old)
        results.append(Result(name, _norm(value - new), size, EPSILON * _norm(new)))
        scales.append(size / max(new.size, 1) ** 0.5 if new.dtype == np.float32 else 0.0)
    least = LEAST_CHANGE * max(scales, default=0.0)
    return [
        result._replace(rounding=result.rounding + least * value.size**0.5)
        for result, value in zip(results, common.values(), strict=True)
    ]


def _unexplained(reference: Reference, differences: Disagreement) -> Disagreement | None:
    """Return the differences that are larger than those of the model with moved inputs and weights.

    In an unstable net, all changes are uncertain; so each result is granted the typical uncertainty, too.
    """
    random = np.random.default_rng(0)
    before_last(reference, differences.parts, random)
    outputs = reference.run(differences.parts[-1].moved(random))
    values, expected, sizes = {**reference.states(), **outputs}, differences.expected, differences.sizes
    noise = {name: _norm(np.subtract(values[name], expected[name], dtype=np.float64)) for name in sizes}
    typical = float(np.median([noise[name] / size for name, size in sizes.items() if size > 0] or [0.0]))
    limits = {result.name: NOISE * max(noise[result.name], typical * result.size) for result in differences.differing}
    return _with(differences, [result for result in differences.differing if not result.error <= limits[result.name]])


def _norm(values: Array) -> float:
    """Return the Euclidean norm, also of integers, and of floats whose squares overflow."""
    flat = np.ravel(values)
    if flat.dtype != np.float32:
        flat = flat.astype(np.float64)
    square = float(np.dot(flat, flat))
    return square**0.5 if np.isfinite(square) and square > 1e-30 else float(np.linalg.norm(flat.astype(np.float64)))
