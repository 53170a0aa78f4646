"""Declared settings: types, ranges and error messages."""

import math
from dataclasses import fields

import numpy as np
import pytest

from odt_sim import Fleet, TrainingPlan
from odt_sim.cli.hydra.settings import default_settings
from odt_sim.declarations import check_values, declared
from odt_sim.errors import ConfigurationError
from odt_sim.export.cache import OPTIONS
from odt_sim.settings import Availability, ExportedModel, General, Profiles, Run, Schedule, Split


def test_fleet_shows_what_is_not_the_default():
    assert repr(Fleet(unseen=4, cohort=2)) == "Fleet(cohort=2, unseen=4)"
    assert repr(Fleet()) == "Fleet()"


def test_settings_of_a_fleet_keep_their_places_where_new_ones_are_added():
    fleet = Fleet(10, 4, 5, 0.1, 20, 8, 2.5, 1e3, 6)
    assert (fleet.cohort, fleet.unseen, fleet.min_devices, fleet.stragglers) == (10, 4, 5, 0.1)
    assert (fleet.adaptation_steps, fleet.evaluated, fleet.timeout) == (20, 8, 2.5)
    assert (fleet.largest_update, fleet.quarantine_after, fleet.hostile) == (1e3, 6, 0)


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (General, {"seed": "a"}, "seed: expected a whole number of at least 0, found 'a'"),
        (General, {"seed": True}, "seed: expected a whole number of at least 0, found True"),
        (Run, {"rounds": 2.5}, "run.rounds: expected a whole number of at least 1, found 2.5"),
        (Run, {"storage": 3}, "run.storage: expected text or null, found 3"),
        (Run, {"until": "dawn"}, "run.until: expected target, plateau or null, found 'dawn'"),
        (Run, {"until": "target"}, "run.until: target needs run.target, found null; set it: run.target=0.9"),
        (Fleet, {"cohort": [1, 2]}, "fleet.cohort: expected a whole number of at least 1 or null, found [1, 2]"),
        (Fleet, {"unseen": -1}, "fleet.unseen: expected a whole number of at least 0 or a list, found -1"),
        (Fleet, {"stragglers": 1}, "fleet.stragglers: expected a number of at least 0 and below 1, found 1"),
        (Fleet, {"timeout": 1e10}, "fleet.timeout: expected a number above 0 and at most 1e+07 or null, found 1e10"),
        (Fleet, {"largest_update": math.inf}, "fleet.largest_update: expected a number above 0 or null, found inf"),
        (Split, {"test": None}, "split.test: expected a number above 0 and below 1, found None"),
        (Split, {"gap": -1}, "split.gap: expected a whole number of at least 0, found -1"),
        (Split, {"test": 0.9}, "split: expected validation and test to sum to below 1, found 0.2 and 0.9"),
        (TrainingPlan, {"learning_rate": "fast"}, "train.learning_rate: expected a number above 0 or null, found 'fast'"),
        (TrainingPlan, {"steps": 1.0}, "train.steps: expected a whole number of at least 0 or null, found 1.0"),
    ],
)  # fmt: skip
def test_value_that_does_not_fit_is_refused_in_one_line(kind, values, message):
    with pytest.raises(ConfigurationError) as caught:
        kind(**values)
    assert str(caught.value) == message.replace("1e10", "10000000000.0")


@pytest.mark.parametrize("value", ["last", ["hidden", "last"], None])
def test_head_is_one_layer_or_several(value):
    check_values(ExportedModel, {"head": value})


UNREAD = [
    (
        Schedule,
        {"pacer_seconds": 3},
        "fleet.schedule.pacer_seconds: expected null with fleet.schedule.kind=synchronous, found 3; only oort uses it",
    ),
    (
        Schedule,
        {"kind": "oort", "concurrency": 3},
        "fleet.schedule.concurrency: expected null with fleet.schedule.kind=oort, found 3; only fedbuff and fedasync use it",
    ),
    (
        Schedule,
        {"kind": "fedbuff", "hinge_after": 2},
        "fleet.schedule.hinge_after: expected 4 with fleet.schedule.staleness=polynomial, found 2; only hinge uses it",
    ),
    (
        Schedule,
        {"kind": "fedasync", "staleness": "constant", "exponent": 2},
        "fleet.schedule.exponent: expected 0.5 with fleet.schedule.staleness=constant, found 2; only polynomial uses it",
    ),
    (
        Availability,
        {"kind": "charging", "on_hours": 1},
        "fleet.availability.on_hours: expected 2.0 with fleet.availability.kind=charging, found 1; only markov uses it",
    ),
    (
        Availability,
        {"kind": "daily", "off_hours": 2},
        "fleet.availability.off_hours: expected 6.0 with fleet.availability.kind=daily, found 2; only markov uses it",
    ),
    (
        Availability,
        {"kind": "markov", "peak": 0.9},
        "fleet.availability.peak: expected 0.4 with fleet.availability.kind=markov, found 0.9; only daily uses it",
    ),
    (
        Availability,
        {"low": 0.3},
        "fleet.availability.low: expected 0.1 with fleet.availability.kind=null, found 0.3; only daily uses it",
    ),
    (Split, {"gap": 3}, "split.gap: expected 1 with split.method=stratified, found 3; only block uses it"),
]


@pytest.mark.parametrize(("kind", "values", "message"), UNREAD)
def test_setting_that_the_choice_does_not_read_is_refused(kind, values, message):
    with pytest.raises(ConfigurationError) as caught:
        kind(**values)
    assert str(caught.value) == message


def test_settings_that_the_choice_reads_or_that_equal_their_default_are_accepted():
    assert Split("block", gap=80).gap == 80
    assert Split("random", gap=1).gap == 1
    assert Availability("markov", on_hours=1, peak=0.4).on_hours == 1
    assert Availability("charging", time_zones={"UTC": 1}, floor=0.5).floor == 0.5
    assert Schedule("fedbuff", staleness="hinge", hinge_after=2, exponent=0.5).hinge_after == 2


def test_numpy_numbers_and_bounds_are_accepted():
    assert Fleet(cohort=np.int64(1), stragglers=0, timeout=1e7).cohort == 1
    assert TrainingPlan(0, np.float32(0.5)).epochs == 0


def test_declared_settings_have_one_line_of_documentation():
    for kind in (General, Run, Fleet, Profiles, Availability, Split, TrainingPlan):
        for setting in (each for each in declared(kind) if each.key.rpartition(".")[0] == kind.group):
            assert setting.kind, setting.key
            assert setting.text[-1] != ".", setting.key
            assert f"    {setting.key.rpartition('.')[2]}: {setting.text}" in kind.__doc__


def test_options_of_an_export_are_settings_of_the_model():
    assert set(OPTIONS) <= {field.name for field in fields(ExportedModel)}


def test_fleet_that_is_too_small_for_the_default_says_what_to_set():
    default = default_settings("fleet")["unseen"]
    message = rf"the fleet has 4 devices; set a smaller fleet\.unseen \(default on the command line: {default}\), or 0"
    with pytest.raises(ConfigurationError, match=message):
        Fleet(unseen=4).check_size(4)


@pytest.mark.parametrize("unseen", [[0, 0], [5], [-1], ["0"], [True]])
def test_ids_of_unseen_devices_are_different_ones_of_the_fleet(unseen):
    with pytest.raises(
        ConfigurationError, match=r"^fleet\.unseen: expected a list of different ids from 0 to 4, found "
    ):
        Fleet(unseen=unseen).check_size(5)
    Fleet(unseen=[4, 0]).check_size(5)
