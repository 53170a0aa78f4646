"""Counts agree with their nouns."""

from odt_sim.counting import counted


def test_count_has_its_noun() -> None:
    assert [counted(count, "device") for count in (0, 1, 2, 1000)] == [
        "0 devices",
        "1 device",
        "2 devices",
        "1,000 devices",
    ]
    assert [counted(count, "strategy", "strategies") for count in (1, 3)] == ["1 strategy", "3 strategies"]
