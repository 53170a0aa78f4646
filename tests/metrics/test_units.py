import pytest

from odt_sim.metrics.units import duration, readable, significant, suited


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (168.0, "hours", ("hours", 1.0)),
        (1.0, "hours", ("hours", 1.0)),
        (0.5, "hours", ("minutes", 60.0)),
        (1.31e-05, "hours", ("seconds", 3600.0)),
        (0.0, "hours", ("seconds", 3600.0)),
        (1.5, "kJ", ("kJ", 1.0)),
        (0.00174, "kJ", ("J", 1000.0)),
    ],
)
def test_unit_is_the_largest_of_which_there_is_at_least_one(value, unit, expected):
    assert suited(value, unit) == expected


def test_headings_of_one_table_share_the_unit_of_their_largest_value():
    headings = ["hours to\ntarget", "simulated\nhours", "kJ per device", "MB per device"]
    assert readable(headings, [[0.001], [0.001, 0.5], [2.0], [1e-6]]) == [
        ("minutes to\ntarget", 60.0),
        ("simulated\nminutes", 60.0),
        ("kJ per device", 1.0),
        ("MB per device", 1.0),
    ]


def test_heading_without_values_is_written_in_the_smallest_unit():
    assert readable(["simulated hours"], [[]]) == [("simulated seconds", 3600.0)]


def test_short_duration_is_in_seconds():
    assert [duration(seconds) for seconds in (0.4, 45.2, 100.0, 3600.0)] == ["0 s", "45 s", "2 min", "60 min"]


@pytest.mark.parametrize(
    ("value", "text"), [(999.4, "999"), (999.7, "1,000"), (-999.7, "-1,000"), (99.97, "100"), (0.00012345, "0.000123")]
)
def test_figures_below_a_thousand_have_three_digits(value, text):
    assert significant(value) == text
