"""Which arguments of a sweep are rewritten."""

import pytest

from odt_sim.cli.overrides import sweepable


@pytest.mark.parametrize(
    ("given", "rewritten"),
    [
        ("strategy.mu=1", "strategy.mu=choice(1)"),
        ("+strategy.layers=[1,2]", "+strategy.layers=choice([1,2])"),
        ("strategy.name='a b'", "strategy.name=choice('a b')"),
        ("strategy.mu=0.1,1", "strategy.mu=0.1,1"),
        ("strategy.mu=", "strategy.mu="),
        ("~strategy.mu", "~strategy.mu"),
        ("strategy_of_mine.mu=1", "strategy_of_mine.mu=1"),
        ("train.epochs=2", "train.epochs=2"),
        ("no override", "no override"),
    ],
)
def test_a_key_of_a_swept_group_becomes_a_choice_of_one(given: str, rewritten: str) -> None:
    sweep = ["-m", "strategy=ditto,mr_mtl"]
    assert sweepable([*sweep, given]) == [*sweep, rewritten]


def test_a_single_run_and_a_group_that_is_not_swept_stay_as_they_are() -> None:
    for arguments in (["strategy=a,b", "strategy.mu=1"], ["-m", "strategy=a", "seed=0,1", "strategy.mu=1"]):
        assert sweepable(arguments) == arguments
