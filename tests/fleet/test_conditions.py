"""The conditions of a run from its settings."""

from pathlib import Path

import numpy as np
import pytest

from odt_sim import Fleet, TrainableModel
from odt_sim.cli.hydra.keys import check_keys
from odt_sim.cli.hydra.overrides import check_overrides, composed, sweepable
from odt_sim.data import digits, federate, iid
from odt_sim.errors import ConfigurationError
from odt_sim.fleet.availability import Always, Charging, Daily, Markov, Trace
from odt_sim.fleet.conditions import Conditions, conditions, data_bytes
from odt_sim.settings import Availability, ConfiguredFleet
from tests.fleet.conftest import CALIBRATION


@pytest.fixture
def measured(softmax: TrainableModel, tmp_path: Path) -> str:
    """A calibration of the model, so that no test has to measure it."""
    path = tmp_path / "calibration.json"
    path.write_text(CALIBRATION.to_json().replace("f" * 64, softmax.fingerprint))
    return str(path)


def made(model: TrainableModel, calibration: str, **availability: object) -> Conditions:
    fleet = Fleet(profiles={"table": "phones", "calibration": calibration}, availability=availability)  # type: ignore[arg-type]
    found = conditions(fleet, 30, 0, model)
    assert found is not None
    return found


def test_fleet_without_profiles_has_no_conditions(softmax: TrainableModel) -> None:
    assert conditions(Fleet(), 30, 0, softmax) is None
    for fleet in (
        Fleet(availability="daily"),  # type: ignore[arg-type]
        Fleet(availability=Availability(floor=0.5)),
        Fleet(profiles={"calibration": "c.json"}),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigurationError, match=r"needs fleet.profiles, found .*; set it: fleet.profiles=phones"):
            conditions(fleet, 30, 0, softmax)


def test_every_kind_of_availability(softmax: TrainableModel, measured: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("device,from,to\n1,0,10\n")
    kinds = {None: Always, "always": Always, "daily": Daily, "charging": Charging, "markov": Markov, str(trace): Trace}
    for kind, expected in kinds.items():
        found = made(softmax, measured, kind=kind)
        assert isinstance(found.availability, expected)
        assert found.availability.available(np.array([1]), 5.0).shape == (1,)
    chain = made(softmax, measured, kind="markov", on_hours=1.5).availability
    assert isinstance(chain, Markov)
    assert chain.on == 5400
    with pytest.raises(
        ConfigurationError, match=r"expected always, daily, charging, markov, a .csv file or null, found 'x'"
    ):
        made(softmax, measured, kind="x")


def test_settings_that_decide_a_run_are_named(softmax: TrainableModel, measured: str, tmp_path: Path) -> None:
    settings = made(softmax, measured, kind="daily", peak=0.5).settings
    assert settings["fleet.availability.kind"] == "daily"
    assert settings["fleet.availability.peak"] == "0.5"
    assert settings["fleet.profiles.table"].startswith("phones ")
    assert len(settings["fleet.profiles.calibration"]) == 12
    trace = tmp_path / "trace.csv"
    found = []
    for end in (10, 11):
        trace.write_text(f"device,from,to\n1,0,{end}\n")
        found.append(made(softmax, measured, kind=str(trace), repeat_hours=24).settings)
    assert found[0]["fleet.availability.repeat_hours"] == "24"
    assert found[0]["fleet.availability.trace"] != found[1]["fleet.availability.trace"]


def test_devices_with_too_little_memory_are_not_eligible(softmax: TrainableModel, measured: str) -> None:
    found = made(softmax, measured)
    data = federate(digits(), iid, 30, seed=0)
    held = data_bytes(data)
    assert held.tolist() == [len(rows) * (64 * 4 + 4) for rows in (np.concatenate(data.parts(i)) for i in range(30))]
    assert found.eligible(np.arange(30), held).all()
    huge = held + 1_200_000_000
    assert found.population.names(np.flatnonzero(found.eligible(np.arange(30), huge))).count("low") == 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "daily", "peak": 0.1, "low": 0.2}, "fleet.availability.low: expected at most peak, 0.1, found 0.2"),
        (
            {"time_zones": {"Europe/Berlin": 0}},
            "fleet.availability.time_zones: expected a share above 0 for Europe/Berlin",
        ),
        ({"on_hours": -1}, "fleet.availability.on_hours: expected a number above 0, found -1"),
        ({"floor": 1.0}, "fleet.availability.floor: expected a number of at least 0 and below 1, found 1.0"),
        (
            {"kind": "daily", "repeat_hours": 24},
            "fleet.availability.repeat_hours: expected null with fleet.availability.kind=daily, found 24; only a .csv",
        ),
        ({"peek": 1}, "fleet.availability.peek: unknown setting; expected one of kind, time_zones, peak, "),
    ],
)
def test_setting_that_does_not_fit_is_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Fleet(availability=values)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)


def test_groups_of_the_fleet_are_set_on_the_command_line() -> None:
    config = composed(["fleet.profiles=phones", "fleet.availability=markov", "fleet.availability.on_hours=3"])
    check_keys(config)
    fleet = ConfiguredFleet(**{**config.fleet, "availability": dict(config.fleet.availability)})
    assert fleet.profiles.table == "phones"
    assert fleet.availability == Availability("markov", on_hours=3)
    assert composed(["fleet.availability=null"]).fleet.availability.kind is None
    written = composed(["fleet.availability={kind: daily, peak: 0.3}"]).fleet.availability
    assert (written.kind, written.peak) == ("daily", 0.3)
    assert sweepable(["-m", "fleet.availability=daily,markov"])[1] == "fleet.availability.kind=daily,markov"


def test_unknown_setting_of_such_a_group_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"fleet.availability.onhours: unknown setting; did you mean fleet"):
        check_overrides(["fleet.availability.onhours=3"], composes=False)
    with pytest.raises(ConfigurationError, match=r"fleet.profiles.speed: unknown setting"):
        check_overrides(["+fleet.profiles.speed=3"])
