"""Runs that are killed at random moments give the bits of an undisturbed run."""

import pytest
from disturbed import GIVEN, Disturbed, moments, outcome

ROUNDS, TIMES = 30, {"actor": 60, "coordinator": 20, "ray": 5}


@pytest.mark.parametrize("strategy", ["ditto", "fedadam", "scaffold"])
def test_repeatedly_killed_run_gives_the_same_bits(strategy, long, undisturbed, tmp_path):
    if not long:
        pytest.skip("tests/cluster/test_s3.py kills an actor and a coordinator; see make torture")
    given = [*GIVEN, f"strategy={strategy}", f"run.rounds={ROUNDS}"]
    expected = undisturbed(*given)
    run = Disturbed(tmp_path / "run", [*given, "backend.actors=3"], seed=1)
    try:
        for moment in moments(0, ROUNDS, TIMES):
            run.kill(moment)
        run.finish()
    finally:
        run.close()
    assert {kind: run.killed.count(kind) for kind in TIMES} == TIMES
    found = outcome(tmp_path / "run")
    assert [row["round"] for row in found["rounds"]] == list(range(1, ROUNDS + 1))
    assert found == expected
