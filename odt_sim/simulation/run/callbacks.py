"""User callbacks: functions of a round's record, wrapped as observers that may stop the run."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from odt_sim._support.user_code import user_code_errors
from odt_sim.data.devices.federated import described
from odt_sim.errors import ConfigurationError, SimulationError
from odt_sim.observers.base import Observer, RunInfo
from odt_sim.persistence.records import RoundRecord
from odt_sim.simulation.run.run_settings import attributes

Function = Callable[[RoundRecord], bool | str | None]
"""A callback, called after each committed round; it returns True, or the reason as text, to end the run."""


class Callback(Observer):
    """A user function as an observer, called once with the record of each round.

    A resumed run first passes the recorded rounds, so that a function that remembers earlier rounds decides as in an
    uninterrupted run. Since the function may decide the length of a run, its failure ends the run.
    """

    required = True

    def __init__(self, function: Function) -> None:
        """Begin before the first round."""
        self._function, self._name, self._round = function, described(function), 0

    def on_begin(self, run: RunInfo) -> bool:
        """Call the function with the recorded rounds that it has not seen; return whether one of them stops the run."""
        return self.reason is not None or any(
            self.on_round(record) for record in run.recorded if record.round > self._round
        )

    def on_round(self, record: RoundRecord) -> bool:
        """Call the function, and return whether it stops the run; `reason` is then set.

        Raises:
            SimulationError: The function failed, or returned a value of another type.
        """
        self._round = record.round
        with user_code_errors(
            self._function, f"callback {self._name}: failed after round {record.round}", SimulationError
        ):
            answer = self._function(record)
            if not isinstance(answer, bool | np.bool_ | str | None):
                raise TypeError(f"it returned {type(answer).__name__}, expected True, False, None or text")
        if answer:
            why = f"{self._name}: {answer}" if isinstance(answer, str) else self._name
            self.reason = f"{why}, round {record.round}"
        return bool(answer)


def as_observers(callbacks: Sequence[Function | Observer]) -> list[Observer]:
    """Return callbacks as observers; observers are returned unchanged.

    Raises:
        ConfigurationError: `callbacks` is no list, or one of them is neither a function nor an observer.
    """
    if isinstance(callbacks, str) or not isinstance(callbacks, Sequence):
        raise ConfigurationError(
            f"callbacks: expected a list, found {_shown(callbacks)}; put it in a list: callbacks=[...]"
        )
    for each in callbacks:
        if isinstance(each, type) or not (isinstance(each, Observer) or callable(each)):
            raise ConfigurationError(
                f"callbacks: expected functions of a round's record, or observers, found {_shown(each)}; pass a "
                "function, or a callable object"
            )
    return [each if isinstance(each, Observer) else Callback(each) for each in callbacks]


def _shown(value: Any) -> str:
    """Return an argument's text for an error: the `repr` of a plain value, otherwise the name or the class."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, bool | int | float | str | Sequence | Mapping | None):
        return repr(value)
    return described(value) if callable(value) else f"an object of {type(value).__name__}"


def text_of_callbacks(callbacks: Sequence[Function | Observer]) -> str:
    """Return the names of callbacks with their settings, such as `log, StopWhenFlat patience=3`."""
    texts = []
    for callback in callbacks:
        is_object = hasattr(callback, "__dict__") and not hasattr(callback, "__name__")
        settings = attributes(callback) if is_object else {}
        texts.append(" ".join([described(callback), *(f"{name}={value}" for name, value in settings.items())]))
    return ", ".join(texts)
