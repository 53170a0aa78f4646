"""Callbacks of the user: functions of a round's record, as observers that may stop the run."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from odt_sim.data.federated import described
from odt_sim.errors import ConfigurationError, SimulationError
from odt_sim.observers.base import Observer, RunInfo
from odt_sim.persistence.records import RoundRecord
from odt_sim.simulation.run_settings import attributes
from odt_sim.user_code import user_code_errors

Function = Callable[[RoundRecord], bool | str | None]
"""Called after each committed round; True, or text that says why, makes it the last."""


class Callback(Observer):
    """A function of the user as an observer, which gets the record of each round once.

    A resumed run first passes the recorded rounds, so that a function that remembers earlier rounds decides as in a run that
    nothing interrupted. Since it may decide how long a run is, its failure ends the run.
    """

    required = True

    def __init__(self, function: Function) -> None:
        """Begin before the first round."""
        self._function, self._name, self._round = function, described(function), 0

    def on_begin(self, run: RunInfo) -> bool:
        """Pass the recorded rounds that are new; stop if one of them was the last."""
        return self.reason is not None or any(
            self.on_round(record) for record in run.recorded if record.round > self._round
        )

    def on_round(self, record: RoundRecord) -> bool:
        """Call the function; keep why it stops the run.

        Raises:
            SimulationError: It failed, or returned something else.
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
        ConfigurationError: They are no list, or one is neither a function nor an observer.
    """
    if isinstance(callbacks, str) or not isinstance(callbacks, Sequence):
        raise ConfigurationError(
            f"callbacks: expected a list, found {_shown(callbacks)}; put it into one: callbacks=[...]"
        )
    for each in callbacks:
        if isinstance(each, type) or not (isinstance(each, Observer) or callable(each)):
            raise ConfigurationError(
                f"callbacks: expected functions of a round's record, or observers, found {_shown(each)}; give a function, or "
                "an object that can be called"
            )
    return [each if isinstance(each, Observer) else Callback(each) for each in callbacks]


def _shown(value: Any) -> str:
    """Return what an error shows: a value as it is written, all else by its name or its class."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, bool | int | float | str | Sequence | Mapping | None):
        return repr(value)
    return described(value) if callable(value) else f"an object of {type(value).__name__}"


def text_of_callbacks(callbacks: Sequence[Function | Observer]) -> str:
    """Return the names of callbacks with their settings, such as `log, StopWhenFlat patience=3`."""
    return ", ".join(map(_text, callbacks))


def _text(callback: Function | Observer) -> str:
    own = attributes(callback) if hasattr(callback, "__dict__") and not hasattr(callback, "__name__") else {}
    return " ".join([described(callback), *(f"{name}={value}" for name, value in own.items())])
