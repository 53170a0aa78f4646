"""The interface of displays, trackers, early stopping and users' callbacks."""

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from odt_sim._support.checks import shown
from odt_sim._support.user_code import user_code_errors
from odt_sim.errors import ConfigurationError, OdtSimError
from odt_sim.persistence.records import RoundRecord, by_reason, is_failure
from odt_sim.persistence.summary import Summary


@dataclass(frozen=True)
class RunInfo:
    """The run that is about to start, for its observers.

    Attributes:
        name: The run's title; in a sweep, it names the job.
        settings: The settings by dotted key, such as `{"run.rounds": 40}`.
        folder: The run's folder, which exists.
        rounds: The maximum number of rounds.
        recorded: The records of the rounds that were committed before the run was resumed.
    """

    name: str
    settings: Mapping[str, Any]
    folder: Path
    rounds: int
    recorded: Sequence[RoundRecord] = ()


class Observer:
    """Observer of one run; all methods do nothing by default.

    An observer that raises an error in `on_begin` ends the run. If it raises one later, this is reported once, the
    observer is dropped, and the run continues, unless the observer is `required`. The records on disk are complete in
    any case.

    Example:
        class StopOnDivergence(Observer):
            def on_round(self, record):
                if record.train_loss is not None and record.train_loss > 10:
                    self.reason = f"train loss above 10 in round {record.round}"
                    return True

        simulation.run(observers=[StopOnDivergence()])

    Attributes:
        reason: Why `on_begin` or `on_round` returned True; by default, the name of the observer's class.
        required: Whether a failure in `on_round` ends the run.
        waits: Whether `on_round` ends a run only after evaluated rounds. Then other short rounds may be committed
            together, and their records arrive in groups, at the first round after which 250 ms have passed.
        decides: Settings of this observer that affect the result, by name; the summary records them.
        prunes: Whether it ends runs because other runs of a search are better; reports do not compare such runs as equals.
    """

    reason: str | None = None
    required: bool = False
    waits: bool = False
    decides: Mapping[str, str] = {}
    prunes: bool = False

    def __init_subclass__(cls) -> None:
        """Warn about methods that nothing calls, such as hooks of Keras' callbacks."""
        super().__init_subclass__()
        if cls.__module__.startswith("odt_sim."):
            return  # a tracker adds a hook
        known = {name for base in cls.__bases__ for name in dir(base)}
        for name in vars(cls):
            if name.startswith("on_") and name not in known:
                warnings.warn(
                    f"{cls.__name__}.{name}: nothing calls it; an Observer has on_begin, on_round, on_warning and on_end",
                    stacklevel=2,
                )

    def on_begin(self, run: RunInfo) -> bool | None:
        """Called after all checks, before the first round; return True to skip to the final evaluation."""
        return None

    def on_round(self, record: RoundRecord) -> bool | None:
        """Called after each committed round; return True to make it the last."""
        return None

    def on_warning(self, message: str) -> None:
        """Called with a one-line warning, such as that the last commit is damaged."""

    def on_end(self, summary: Summary | None) -> None:
        """Called once at the end with the summary; None if the run failed or was interrupted."""


class ExclusionWarnings(Observer):
    """Observer that warns once for each reason why devices were left out of a round or not evaluated."""

    waits = True

    def __init__(self) -> None:
        """Start with no reasons warned about."""
        self._warned: set[str] = set()

    def on_round(self, record: RoundRecord) -> None:
        """Warn about reasons that did not occur in an earlier round."""
        self._warn(f"excluded from round {record.round}", record.excluded_reasons)
        missing = {id: reason for id, reason in (record.not_evaluated or {}).items() if is_failure(reason)}
        self._warn(f"not evaluated after round {record.round}", missing)

    def _warn(self, what: str, reasons: Mapping[int, str]) -> None:
        for reason, devices in by_reason(reasons.items()).items():
            if reason not in self._warned:
                self._warned.add(reason)
                warnings.warn(f"{what}: {reason} on {devices}; see rounds.jsonl", stacklevel=2)


class Observers(Observer):
    """Several observers as one, which isolates the run from failures of observers that are not required."""

    required = True

    def __init__(
        self,
        observers: Sequence[Observer] | None,
        *,
        name: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Group observers.

        Args:
            observers: The observers in the order in which they are called; they end in reverse order. None for a
                progress display if stderr is a terminal, or in a notebook, else for Python warnings of excluded
                devices.
            name: The title in `RunInfo`; None for the run's title.
            settings: The settings in `RunInfo`; None for the run's settings.
        """
        self._members = _default() if observers is None else _checked(observers)
        self._begun: list[Observer] = []
        self._changes: dict[str, Any] = {
            key: value for key, value in (("name", name), ("settings", settings)) if value is not None
        }
        self.decides = {key: value for each in self._members for key, value in each.decides.items()}

    @property
    def waits(self) -> bool:  # type: ignore[override]
        """Whether the records of short rounds may be passed late to all observers."""
        return all(each.waits or type(each).on_round is Observer.on_round for each in self._members)

    def on_begin(self, run: RunInfo) -> bool:
        """Call `on_begin` of all observers, and return whether one of them stops the run.

        Raises:
            ConfigurationError: An observer failed; the observers that have begun are ended.
        """
        run, stop = replace(run, **self._changes), False
        try:
            for observer in self._members:
                with user_code_errors(observer, f"{_name(observer)}.on_begin: failed", ConfigurationError):
                    stop |= self._stops(observer, observer.on_begin(run))
                self._begun.append(observer)
        except BaseException:
            self.on_end(None)
            raise
        return stop

    def on_round(self, record: RoundRecord) -> bool:
        """Pass a record to all observers; return whether one of them stops the run.

        Raises:
            OdtSimError: A required observer failed.
        """
        stops = [
            self._attempt(observer, observer.on_round, record, required=observer.required)
            for observer in list(self._begun)
        ]
        return any(stops)

    def on_warning(self, message: str) -> None:
        """Pass a warning to the observers of warnings; without any, issue a Python warning."""
        listeners = [each for each in self._members if type(each).on_warning is not Observer.on_warning]
        if not listeners:
            warnings.warn(message, stacklevel=2)
        for observer in listeners:
            observer.on_warning(message)

    def on_end(self, summary: Summary | None) -> None:
        """End the observers that have begun, in reverse order."""
        while self._begun:
            observer = self._begun[-1]
            self._attempt(observer, observer.on_end, summary)
            self._begun = [each for each in self._begun if each is not observer]

    def _attempt(
        self, observer: Observer, method: Callable[..., bool | None], argument: Any, *, required: bool = False
    ) -> bool:
        try:
            with user_code_errors(observer, f"{_name(observer)}.{method.__name__}: failed", ConfigurationError):
                return self._stops(observer, method(argument))
        except OdtSimError as error:
            if required:
                raise
            self._members.remove(observer)
            self._begun.remove(observer)
            self.on_warning(f"{error}; the run continues without this {_name(observer)}")
            return False

    def _stops(self, observer: Observer, stop: bool | None) -> bool:
        if stop:
            self.reason, self.prunes = observer.reason or _name(observer), observer.prunes
        return bool(stop)


def in_notebook() -> bool:
    """Return whether this process is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    return getattr(ipython.get_ipython() if ipython else None, "kernel", None) is not None


def _checked(observers: Sequence[Observer]) -> list[Observer]:
    for each in observers if isinstance(observers, Sequence) and not isinstance(observers, str) else [observers]:
        if not isinstance(each, Observer):
            raise ConfigurationError(
                f"observers: expected a list of observers, found {shown(each)}; pass instances of subclasses of "
                "odt_sim.observers.Observer, and functions as callbacks=[function] of Simulation"
            )
    if isinstance(observers, Observer):
        raise ConfigurationError("observers: expected a list, found one observer; put it in a list: observers=[...]")
    return list(observers)


def _default() -> list[Observer]:
    if not (sys.stderr.isatty() or in_notebook()):
        return [ExclusionWarnings()]
    from odt_sim.observers.display import Display  # imports rich

    return [Display()]


def _name(observer: Observer) -> str:
    return type(observer).__name__
