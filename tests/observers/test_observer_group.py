"""Observers follow a run and cannot break it."""

from pathlib import Path
from typing import Any

import pytest

from odt_sim.errors import ConfigurationError
from odt_sim.observers.base import Observer, Observers, RunInfo

RUN = RunInfo("fedavg", {"seed": 0}, Path("run"), rounds=3)


class Recorder(Observer):
    """An observer that records its calls, and raises an error or returns True on request."""

    def __init__(self, name: str = "", fails_in: str = "", stops_in: str = "", reason: str | None = None) -> None:
        self.name, self.calls = name, list[Any]()
        self._fails_in, self._stops_in, self.reason = fails_in, stops_in, reason

    def on_begin(self, run: RunInfo) -> bool:
        self.run = run
        return self._called("begin")

    def on_round(self, record: Any) -> bool:
        return self._called(f"round {record['round']}")

    def on_warning(self, message: str) -> None:
        self.calls.append(message)

    def on_end(self, summary: Any) -> None:
        self._called("end" if summary else "failed")

    def _called(self, call: str) -> bool:
        self.calls.append(call)
        if call == self._fails_in:
            raise OSError("no [room]\nleft")
        return call == self._stops_in


def test_all_observers_follow_a_run() -> None:
    one, two = Recorder(), Recorder()
    observers = Observers([one, two])
    assert not observers.on_begin(RUN)
    assert not observers.on_round({"round": 1})
    observers.on_end({"rounds": 1})
    observers.on_end({"rounds": 1})  # once
    assert one.calls == two.calls == ["begin", "round 1", "end"]
    assert one.run == RUN


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (print, r"expected a list of observers, found a builtin_function_or_method; .* functions as callbacks="),
        ([print], r"expected a list of observers, found a builtin"),
        ([Recorder], r"expected a list of observers, found the class Recorder; pass instances"),
        ("text", r"expected a list of observers, found 'text'"),
        (Recorder(), r"expected a list, found one observer; put it in a list"),
    ],
)
def test_what_is_no_list_of_observers_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^observers: {message}"):
        Observers(given)


def test_observer_that_fails_in_a_round_is_reported_once_and_dropped() -> None:
    bad, good = Recorder(fails_in="round 1"), Recorder()
    observers = Observers([bad, good])
    observers.on_begin(RUN)
    observers.on_round({"round": 1})
    observers.on_round({"round": 2})
    observers.on_end({})
    assert bad.calls == ["begin", "round 1"]
    [message] = [
        call for call in good.calls if call.startswith("Recorder.on_round: failed with OSError: no [room] left")
    ]
    assert f"{Path(__file__).name}:" in message
    assert message.endswith("; the run continues without this Recorder")


def test_observer_that_fails_in_on_begin_ends_the_others_and_the_run() -> None:
    good, bad = Recorder(), Recorder(fails_in="begin")
    observers = Observers([good, bad])
    with pytest.raises(ConfigurationError, match=r"^Recorder\.on_begin: failed with OSError: no \[room\] left"):
        observers.on_begin(RUN)
    assert good.calls == ["begin", "failed"]


def test_observer_that_fails_in_on_end_hides_no_error() -> None:
    bad, good = Recorder(fails_in="failed"), Recorder()
    observers = Observers([good, bad])
    observers.on_begin(RUN)
    observers.on_end(None)
    assert good.calls[-1] == "failed"
    assert "Recorder.on_end: failed with" in good.calls[1]


@pytest.mark.parametrize(("reason", "shown"), [("diverged", "diverged"), (None, "Recorder")])
def test_observer_stops_the_run_with_a_reason(reason: str | None, shown: str) -> None:
    last = Recorder()
    observers = Observers([Observers([Recorder(stops_in="round 2", reason=reason)]), last])
    observers.on_begin(RUN)
    assert not observers.on_round({"round": 1})
    assert observers.on_round({"round": 2})
    assert observers.reason == shown
    assert last.calls[-1] == "round 2"  # observers after it also get the record


def test_observer_stops_a_resumed_run_before_its_next_round() -> None:
    assert Observers([Recorder(), Recorder(stops_in="begin")]).on_begin(RUN)


def test_nested_observers_get_their_own_title_and_settings() -> None:
    inner = Recorder()
    Observers([Observers([inner], name="fedavg seed=1", settings={"seed": 1})]).on_begin(RUN)
    assert (inner.run.name, inner.run.settings, inner.run.rounds) == ("fedavg seed=1", {"seed": 1}, 3)


def test_warning_that_no_observer_takes_is_a_python_warning() -> None:
    with pytest.warns(UserWarning, match="^damaged$"):
        Observers([Observer()]).on_warning("damaged")
