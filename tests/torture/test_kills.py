"""Runs that are killed at random moments give the bits of an undisturbed run."""

import pytest
from disturbed import GIVEN, Disturbed, moments, outcome

STRATEGIES = ["ditto", "fedadam", "scaffold"]
SHORT = (8, {"actor": 3, "coordinator": 1})
LONG = (30, {"actor": 60, "coordinator": 20, "ray": 5})


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_repeatedly_killed_run_gives_the_same_bits(strategy, long, undisturbed, tmp_path):
    if strategy != STRATEGIES[0] and not long:
        pytest.skip("the short form runs one strategy; see make torture")
    rounds, times = LONG if long else SHORT
    given = [*GIVEN, f"strategy={strategy}", f"run.rounds={rounds}"]
    expected = undisturbed(*given)
    run = Disturbed(tmp_path / "run", [*given, "backend.actors=3"], seed=1)
    try:
        for moment in moments(0, rounds, times):
            run.kill(moment)
        run.finish()
    finally:
        run.close()
    assert {kind: run.killed.count(kind) for kind in times} == times
    found = outcome(tmp_path / "run")
    assert [row["round"] for row in found["rounds"]] == list(range(1, rounds + 1))
    assert found == expected
