"""On a real cluster of three nodes: the same bits as in one process, and one line for what cannot be."""

import json
import re

import psutil
import pytest
import ray

from odt_sim.strategies.fedavg import FedAvg

THEIRS = """
from odt_sim import Strategy

class Mine(Strategy):
    def local(self, device, broadcast):
        device.state["kept"] = broadcast["weights"]
        return super().local(device, broadcast)
"""
MEBIBYTE = 1 << 20


def is_alive(process):
    return psutil.Process(process).status() != psutil.STATUS_ZOMBIE if psutil.pid_exists(process) else False


def rows(folder):
    return [json.loads(row) for row in (folder / "devices.jsonl").read_text().splitlines()]


def test_the_bits_are_those_of_one_process_and_each_node_holds_the_job_once(run_there, user, results, tmp_path):
    """With two actors on each node; the strategy alone is 4 MiB."""
    serial = results(user.Heavy(), tmp_path / "serial")
    done = run_there(tmp_path / "cluster", user.Heavy(), measured=True, backend={"num_cpus": 0.5})
    assert done.stderr == ""
    type(serial).read(tmp_path / "cluster").assert_same_bits(serial)
    stored = json.loads(done.stdout)["stored"]
    assert len(stored) == 3
    assert all(4 * MEBIBYTE < size < 7 * MEBIBYTE for size in stored), stored


def test_actors_are_spread_over_nodes_and_none_loads_tensorflow(run_there, user, tmp_path):
    """Though all of them would fit on one."""
    settings = {"rounds": 1, "fewest_blocks": 7, "backend": {"actors": 3, "num_cpus": 0.25}}
    done = run_there(tmp_path / "cluster", user.RecordsNode(), **settings)
    assert done.returncode == 0, done.stderr
    found = rows(tmp_path / "cluster")
    assert len({row["node"] for row in found}) == 3
    assert not any(row["tensorflow"] for row in found)


def test_a_node_that_dies_in_the_middle_changes_no_bit(fourth_node, run_there, user, results, tmp_path):
    process, _ = fourth_node
    assert is_alive(process)
    serial = results(user.KillsANode(1 << 30), tmp_path / "serial")  # no process has this number
    done = run_there(tmp_path / "cluster", user.KillsANode(process))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    type(serial).read(tmp_path / "cluster").assert_same_bits(serial)
    assert not is_alive(process)


def test_the_death_of_a_node_is_not_told_as_that_of_its_workers(three_nodes, fourth_node, tmp_path):
    """Which Ray's words alone tell apart."""
    process, node = fourth_node
    done = three_nodes.script("whose_death.py", str(process), node, folder=tmp_path)
    assert done.stdout.split() == ["True", "False"], done.stderr


def test_storage_that_a_node_does_not_see_is_refused_before_the_first_round(apart, run_there, tmp_path):
    folder = apart.hidden / "run"
    done = run_there(folder, FedAvg())
    assert done.returncode == 1
    message = (
        rf"error: run\.storage: node \S+ \(.+\) does not see the run's {folder}/checkpoint; give a place that all nodes"
    )
    assert re.match(message, done.stderr), done.stderr
    assert not (folder / "rounds.jsonl").exists()
    assert list((folder / "checkpoint").iterdir()) == []


def test_the_command_is_the_same_on_a_cluster_and_sends_the_users_files(apart, softmax, tmp_path):
    """A strategy of the working folder, which keeps something on the devices, on the node without that folder."""
    (apart.hidden / "theirs.py").write_text(THEIRS)
    here = ["strategy._target_=theirs.Mine", f"hydra.run.dir={tmp_path}/serial", "backend=serial"]
    assert apart.command(*here).returncode == 0
    there = ["strategy._target_=theirs.Mine", f"run.storage={tmp_path}/shared", "backend.address=auto"]
    missing = apart.command(*there, f"hydra.run.dir={tmp_path}/missing")
    lacks = r"error: backend ray: node \S+ has no module theirs; install it there, or send .*: backend\.runtime_env="
    assert re.match(lacks, missing.stderr.splitlines()[-1]), missing.stderr
    sent = apart.command(*there, f"hydra.run.dir={tmp_path}/cluster", "backend.runtime_env={working_dir: .}")
    assert sent.returncode == 0, sent.stderr
    assert rows(tmp_path / "cluster") == rows(tmp_path / "serial")


CASES = {
    "too few CPUs": (["backend.actors=9"], r"backend\.actors: 9 actors need CPU 1 each, only 3 fit \("),
    "too large": (["backend.num_cpus=2"], r"backend\.actors: 1 actors need CPU 2 each, only 0 fit \("),
    "no such resource": (
        ["backend.resources={phone: 1}"],
        r"backend\.resources: no node has phone, found CPU, apart; start",
    ),
    "no such package": (["backend.runtime_env={pip: [./no-such]}"], r"backend ray: RuntimeEnvSetupError: .+; look at "),
}


@pytest.mark.parametrize("case", CASES)
def test_what_the_cluster_has_not_is_one_line(three_nodes, softmax, tmp_path, case):
    given, message = CASES[case]
    done = three_nodes.command("backend.address=auto", f"hydra.run.dir={tmp_path}/run", *given)
    assert_one_line(done, message)


def test_another_version_of_ray_is_one_line(three_nodes, softmax, tmp_path):
    ours = three_nodes.do("pretend 2.0.0")
    try:
        done = three_nodes.command("backend.address=auto", f"hydra.run.dir={tmp_path}/run")
    finally:
        three_nodes.do(f"pretend {ours}")
    assert ours == ray.__version__
    message = (
        rf"backend\.address=auto: the cluster has Ray 2\.0\.0 and Python \S+, this process has Ray {re.escape(ours)} "
    )
    assert_one_line(done, message)


def test_an_address_of_ray_client_and_a_closed_port_are_one_line(three_nodes, softmax, tmp_path):
    folder = f"hydra.run.dir={tmp_path}/run"
    done = three_nodes.command("backend.address=ray://127.0.0.1:10001", folder)
    assert_one_line(
        done, r"backend\.address=ray://127\.0\.0\.1:10001: Ray Client has no access to a node's memory; run"
    )
    done = three_nodes.command("backend.address=auto", folder, RAY_ADDRESS="127.0.0.1:1")
    assert_one_line(done, r"backend\.address=auto \(RAY_ADDRESS=127\.0\.0\.1:1\): nothing answers there \(")


def assert_one_line(done, message):
    assert done.returncode == 1
    *display, last = done.stderr.splitlines()
    assert re.match(f"error: {message}", last), last
    assert all(re.search(r"0/1 0:\d\d:\d\d failed|^$", line) for line in display), done.stderr
    assert done.stdout.strip() == ""
