"""Counts agree with their nouns, and long lists are cut."""

from odt_sim._support.text import counted, few


def test_count_has_its_noun() -> None:
    assert [counted(count, "device") for count in (0, 1, 2, 1000)] == [
        "0 devices",
        "1 device",
        "2 devices",
        "1,000 devices",
    ]
    assert [counted(count, "strategy", "strategies") for count in (1, 3)] == ["1 strategy", "3 strategies"]


def test_long_list_is_cut() -> None:
    assert [few([*range(length)], 2) for length in range(4)] == ["", "0", "0, 1", "0, 1 and 1 more"]
