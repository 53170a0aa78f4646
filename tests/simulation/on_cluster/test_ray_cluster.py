"""On a cluster of three nodes, runs give the bits of a serial run, and each problem is reported in one line."""

import json
import re

import psutil
import pytest

from odt_sim.cli.commands.run import launch
from odt_sim.strategies.averaging.fedavg import FedAvg

pytestmark = pytest.mark.slow

THEIRS = """
from odt_sim import Strategy

class Mine(Strategy):
    def local(self, device, broadcast):
        device.state["kept"] = broadcast["weights"]
        return super().local(device, broadcast)
"""


def is_alive(process):
    return psutil.Process(process).status() != psutil.STATUS_ZOMBIE if psutil.pid_exists(process) else False


def rows(folder):
    return [json.loads(row) for row in (folder / "devices.jsonl").read_text().splitlines()]


def test_actors_are_spread_over_nodes_without_tensorflow(run_there, user, tmp_path):
    """All of them would fit on one node."""
    settings = {"rounds": 1, "fewest_blocks": 7, "backend": {"actors": 3, "num_cpus": 0.25}}
    done = run_there(tmp_path / "cluster", user.RecordsNode(), **settings)
    assert done.returncode == 0, done.stderr
    found = rows(tmp_path / "cluster")
    assert len({row["node"] for row in found}) == 3
    assert not any(row["tensorflow"] for row in found)


def test_dying_node_changes_no_bit(fourth_node, run_there, user, results, tmp_path):
    process, _ = fourth_node
    assert is_alive(process)
    serial = results(user.KillsANode(1 << 30), tmp_path / "serial")  # no process has this id
    done = run_there(tmp_path / "cluster", user.KillsANode(process))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    type(serial).read(tmp_path / "cluster").assert_same_bits(serial)
    assert not is_alive(process)


def test_death_of_a_node_is_not_a_workers_own(three_nodes, fourth_node, tmp_path):
    process, node = fourth_node
    done = three_nodes.script("whose_death.py", str(process), node, folder=tmp_path)
    assert done.stdout.split() == ["True", "False"], done.stderr


def test_storage_that_a_node_does_not_see_is_refused_before_the_first_round(apart, run_there, tmp_path):
    folder = apart.hidden / "run"
    done = run_there(folder, FedAvg())
    assert done.returncode == 1
    message = (
        rf"error: run\.storage: node \S+ \(.+\) cannot access the run's {folder}/checkpoint \(.+/probe: no such .*\);"
    )
    assert re.match(message, done.stderr), done.stderr
    assert not (folder / "rounds.jsonl").exists()
    assert list((folder / "checkpoint").iterdir()) == []


def test_command_runs_on_a_cluster_with_the_users_files(apart, softmax, tmp_path, monkeypatch):
    """A strategy in the working folder runs on a node that cannot see that folder."""
    (apart.hidden / "theirs.py").write_text(THEIRS)
    monkeypatch.syspath_prepend(apart.hidden)
    here = [*apart.OVERRIDES, "strategy._target_=theirs.Mine", f"hydra.run.dir={tmp_path}/serial", "backend=serial"]
    assert launch(here).failed == 0
    there = ["strategy._target_=theirs.Mine", f"run.storage={tmp_path}/shared", "backend.address=auto"]
    missing = apart.command(*there, f"hydra.run.dir={tmp_path}/missing")
    lacks = r"error: backend ray: a worker failed with \S+: .*No module named 'theirs'; install its modules .*_env="
    assert re.match(lacks, missing.stderr.splitlines()[-1]), missing.stderr
    sent = apart.command(*there, f"hydra.run.dir={tmp_path}/cluster", "backend.runtime_env={working_dir: .}")
    assert sent.returncode == 0, sent.stderr
    assert rows(tmp_path / "cluster") == rows(tmp_path / "serial")


CASES = {
    "no such resource": (
        ["backend.resources={phone: 1}"],
        r"backend\.resources: no node has phone, found CPU, apart; start",
    ),
    "no such environment": (
        ["backend.runtime_env={conda: no-such}"],  # for pip, Ray first copies the whole environment of these tests
        r"backend ray: RuntimeEnvSetupError: .+; see Ray's",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_missing_requirement_is_one_line(three_nodes, softmax, tmp_path, case):
    overrides, message = CASES[case]
    done = three_nodes.command("backend.address=auto", f"hydra.run.dir={tmp_path}/run", *overrides)
    assert_one_line(done, message)


def test_closed_port_is_one_line(three_nodes, softmax, tmp_path):
    done = three_nodes.command("backend.address=auto", f"hydra.run.dir={tmp_path}/run", RAY_ADDRESS="127.0.0.1:1")
    assert_one_line(done, r"backend\.address=auto \(RAY_ADDRESS=127\.0\.0\.1:1\): nothing answers there \(")


def assert_one_line(done, message):
    assert done.returncode == 1
    *_, last = done.stderr.splitlines()
    assert re.match(f"error: {message}", last), done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.strip() == ""
