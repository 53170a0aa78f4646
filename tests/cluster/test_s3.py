"""A run with its checkpoint on an S3 server."""

from pathlib import Path

from odt_sim import TrainableModel
from odt_sim.cli.commands.run import launch
from tests.cluster.conftest import S3
from tests.torture.disturbed import Disturbed, Moment, outcome

GIVEN = ["model=softmax", "strategy=ditto", "fleet.devices=6", "fleet.unseen=2", "run.rounds=12"]


def test_killed_run_resumes_from_s3_to_the_same_bits(s3: S3, softmax: TrainableModel, tmp_path: Path) -> None:
    """Device states are in the bucket; SIGKILL ends one of two actors, and the coordinator after round 3 or later."""
    assert launch([*GIVEN, "backend=serial", f"hydra.run.dir={tmp_path}/serial"]).failed == 0
    there = ["backend.actors=2", "run.storage=s3://bucket/killed"]
    run = Disturbed(tmp_path / "killed", [*GIVEN, *there], seed=0, **s3.environment)
    try:
        run.kill(Moment(1, 0, "actor"))
        run.wait_for(lambda: s3.files.exists("bucket/killed/server.3.safetensors"))
        run.kill(Moment(3, 0, "coordinator"))
        assert run.rounds() < 12
        run.finish()
    finally:
        run.close()
    s3.files.get("bucket/killed", str(tmp_path / "killed" / "checkpoint"), recursive=True)
    found = outcome(tmp_path / "killed")
    assert [row["round"] for row in found["rounds"]] == list(range(1, 13))
    assert found == outcome(tmp_path / "serial")
