import numpy as np
import pandas as pd
import pytest

from odt_sim.data.sources.table_columns import nanoseconds


def days(*texts):
    found = nanoseconds(pd.Series(texts), "data t: column 'when'", pd).astype("datetime64[ns]")
    return [str(each) for each in found.astype("datetime64[D]")]


def test_number_above_12_says_which_is_the_day():
    assert days("03/04/2025", "13/04/2025") == ["2025-04-03", "2025-04-13"]
    assert days("13.04.2025 10:00", "03.04.2025 11:00") == ["2025-04-13", "2025-04-03"]
    assert days("03/04/2025", "03/13/2025") == ["2025-03-04", "2025-03-13"]
    assert days("03 04 2025", "13 04 2025") == ["2025-04-03", "2025-04-13"]
    assert days("03. 04. 2025", "13. 04. 2025") == ["2025-04-03", "2025-04-13"]
    assert days("Thu, 03.04.2025", "Sun, 13.04.2025") == ["2025-04-03", "2025-04-13"]
    assert days("Thu,03/04/2025", "Thu,10/04/2025", "Sun,13/04/2025")[0] == "2025-04-03"
    assert days("Thu 03/04/2025 10:00", "Sun 13/04/2025 11:00") == ["2025-04-03", "2025-04-13"]
    assert days("Tue 03 04 2025", "Mon 05 05 2025") == ["2025-03-04", "2025-05-05"]  # by the weekday


def test_dates_without_such_a_number_are_read_with_the_month_first_and_a_warning():
    expected = (
        r"^data t: column 'when': dates such as 03/04/2025 are read as month first, .*; write them as 2025-03-31$"
    )
    with pytest.warns(UserWarning, match=expected):
        assert days("03/04/2025", "05/05/2025") == ["2025-03-04", "2025-05-05"]


def test_dates_of_one_meaning_need_no_warning():
    assert days("05/05/2025") == ["2025-05-05"]
    assert days("2025-03-04", "2025-03-14") == ["2025-03-04", "2025-03-14"]
    stamps = pd.Series(np.array(["2025-03-04"], "datetime64[s]"))
    assert nanoseconds(stamps, "", pd).tolist() == [1741046400 * 10**9]


def test_times_of_summer_and_winter_are_those_of_utc():
    column = pd.Series(["2025-03-30 01:30:00+01:00", "2025-03-30 03:00:00+02:00"])
    found = nanoseconds(column, "data t: column 'when'", pd)
    assert (found - found[0]).tolist() == [0, 1800 * 10**9]
    assert found[0] == 1743294600 * 10**9


def test_iso_dates_may_differ_in_precision():
    """As `datetime.isoformat`, which leaves out a fraction of 0."""
    found = nanoseconds(pd.Series(["2025-03-30T01:00:00.5", "2025-03-30T01:00:01", "2025-03-30"]), "", pd)
    assert (found - found[2]).tolist() == [3600_500_000_000, 3601_000_000_000, 0]


@pytest.mark.parametrize("texts", [("04/13/2025", "13/04/2025"), ("03/04/2025", "9999-12-31")])
def test_dates_without_a_common_format_are_refused(texts):
    with pytest.raises(
        ValueError, match=f"^dates such as '{texts[0]}' have no common format; write them as 2025-03-31$"
    ):
        days(*texts)


@pytest.mark.parametrize("text", ["NaT", ""])
def test_text_that_is_no_date_is_refused(text):
    with pytest.raises(ValueError, match=f"^'{text}' is not a date$"):
        days("2025-03-04", text)


def test_years_beyond_nanoseconds_are_refused():
    with pytest.raises(ValueError, match="9999-12-31"):
        days("2025-03-04", "9999-12-31")
