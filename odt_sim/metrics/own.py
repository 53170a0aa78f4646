"""User-defined metrics: functions of a device's outputs and targets."""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from odt_sim._support.user_code import user_code_errors
from odt_sim.errors import ConfigurationError, SimulationError
from odt_sim.metrics.names import KINDS, is_metric, is_own, know, title_of
from odt_sim.model.weights import Array

Arrays = Mapping[str, Array]


class OwnMetric(NamedTuple):
    """A user-defined metric.

    Attributes:
        name: Its name in records and reports: the function's; for a `functools.partial` without a `__name__`, that of
            the wrapped function.
        function: Receives the outputs of `infer`, `[examples, ...]`, and the targets, and returns a number; None or NaN
            if it is undefined on the examples. With several outputs, it receives two mappings by the outputs' names.
            For an output with a mask or an ignored class, it receives only the positions that count,
            `[positions, ...]`.
        higher_is_better: The function's attribute of that name, or that of the function wrapped by a
            `functools.partial`; True without one.
        uses_train: Whether the function has a parameter `train`, which receives the outputs and the targets of the
            device's training examples as a pair, such as for a threshold.
    """

    name: str
    function: Callable[..., float | None]
    higher_is_better: bool
    uses_train: bool = False


def own_metrics(functions: Sequence[Callable[..., float | None]]) -> tuple[OwnMetric, ...]:
    """Return the metrics of some functions, and register their names for reports in this process.

    Raises:
        ConfigurationError: An element is not a function, has no usable name, or has the name of another metric.
    """
    if callable(functions):
        name = getattr(functions, "__name__", type(functions).__name__)
        raise ConfigurationError(f"metrics: expected a list of functions, found {name}; write [{name}]")
    found: dict[str, OwnMetric] = {}
    for function in functions:
        name = _attribute(function, "__name__", type(function).__name__)
        if isinstance(function, type):
            raise ConfigurationError(f"metrics: expected functions, found the class {name}; name a function")
        if not callable(function) or not name.isidentifier():
            raise ConfigurationError(f"metrics: expected functions with a name, found {name}; define them with def")
        if name in found or (is_metric(name) and not is_own(name)):
            raise ConfigurationError(f"metrics: {name} {_clash(name, found)}; rename the function")
        higher = bool(_attribute(function, "higher_is_better", True))
        found[name] = OwnMetric(name, function, higher, uses_train=_has_parameter(function, "train"))
    know({metric.name: metric.higher_is_better for metric in found.values()})
    return tuple(found.values())


def _clash(name: str, found: Iterable[str]) -> str:
    """Return why a name cannot be used: it is that of a metric, or has the form of a metric of one output or target."""
    if name in found or name in KINDS:
        return "is already the name of a metric"
    return f"would be read as {title_of(name)}"


def _attribute(function: Any, name: str, default: Any) -> Any:
    """Return an attribute of a function, or of the function wrapped in a `partial`, which does not inherit it."""
    while isinstance(function, partial) and not hasattr(function, name):
        function = function.func
    return getattr(function, name, default)


def _has_parameter(function: Callable[..., Any], name: str) -> bool:
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):  # functions written in C may have no signature
        return False


def own_figures(
    metrics: Sequence[OwnMetric],
    answers: Arrays,
    y: Arrays,
    masks: Arrays | None = None,
    *,
    device: int = 0,
    train: Callable[[], Mapping[str, Any] | None] = lambda: None,
) -> dict[str, float]:
    """Return the user-defined metrics of one device; undefined metrics are absent.

    Args:
        metrics: The metrics.
        answers: The outputs of `infer` by name; a single output has the empty name.
        y: The targets by name.
        masks: `[examples, ...]` by name, 1 where a position counts; outputs without excluded positions are absent.
        device: The device's id, for errors.
        train: Returns `answers`, `y` and `masks` of the training examples; None if there are none. It is called only
            for metrics that use them, which are undefined without them.

    Raises:
        SimulationError: A function failed, or did not return a number.
    """
    if not metrics:
        return {}
    arguments, further = _arguments(answers, y, masks), dict[str, Any]()
    if any(metric.uses_train for metric in metrics):
        trained = train()
        further = {"train": trained and _arguments(trained["answers"], trained["y"], trained["masks"])}
        metrics = [metric for metric in metrics if trained or not metric.uses_train]
    values = {
        metric.name: _value(metric, arguments, further if metric.uses_train else {}, device) for metric in metrics
    }
    return {name: value for name, value in values.items() if value is not None}


def _arguments(answers: Arrays, y: Arrays, masks: Arrays | None) -> tuple[Any, Any]:
    """Return the outputs and the targets for a metric: arrays, or mappings if there are several outputs."""
    counted = {name: _counted(answers[name], y[name], (masks or {}).get(name)) for name in answers}
    outputs, targets = ({name: pair[place] for name, pair in counted.items()} for place in (0, 1))
    return next(iter(counted.values())) if len(counted) == 1 else (outputs, targets)


def _value(metric: OwnMetric, arguments: tuple[Any, Any], further: Mapping[str, Any], device: int) -> float | None:
    with user_code_errors(metric.function, f"metric {metric.name}: failed on device {device}", SimulationError):
        value = metric.function(*deepcopy(arguments), **deepcopy(further))  # other metrics use the same arrays
        if value is None:
            return None
        if not isinstance(value, int | float | np.number | np.bool_):
            raise TypeError(f"it returned {type(value).__name__}, expected a number or None")
    return None if math.isnan(value) else float(value)


def _counted(outputs: Array, y: Array, mask: Array | None) -> tuple[Array, Array]:
    if mask is None:
        return outputs, y
    counts = mask != 0
    return outputs[counts], y.reshape(*counts.shape, *y.shape[counts.ndim :])[counts]
