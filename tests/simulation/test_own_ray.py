"""A Ray that odt_sim starts talks to this machine alone, and has no process that it does not need."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from ipaddress import ip_address

import pytest

OWN_RAY = """
import json, os, psutil, ray, threading
os.setpgid(0, 0)
from odt_sim.simulation.ray import RayBackend
starter = threading.Thread(target=RayBackend().start)
starter.start()
starter.join()
heaps = ray.get(ray.remote(lambda: os.environ["MALLOC_ARENA_MAX"]).remote())  # a worker has sockets, too
processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
print(json.dumps({
    "heaps": [os.environ["MALLOC_ARENA_MAX"], heaps],
    "commands": [process.cmdline() for process in processes],
    "group": [process.name() for process in processes if os.getpgid(process.pid) == os.getpgid(0)],
    "sockets": [
        (process.name(), connection.laddr.ip)
        for process in processes
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN or (connection.type == 2 and not connection.raddr)  # 2: UDP
    ],
}))
"""

RUN_TWICE = """
import sys, time
import psutil, ray
from odt_sim import Fleet, Simulation, TrainableModel
from odt_sim.data import digits, federate, iid
from odt_sim.simulation.ray import RayBackend
from odt_sim.strategies import FedAvg
def run(directory):
    data = federate(digits(), iid, devices=3, seed=0)
    options = {"rounds": 1, "fleet": Fleet(unseen=0), "directory": directory, "backend": RayBackend(actors=1)}
    return Simulation(TrainableModel.load(sys.argv[1]), data, FedAvg(), **options).run()
run("first")
[raylet] = [process for process in psutil.Process().children() if process.name() == "raylet"]
raylet.kill()
until = time.monotonic() + 60
while ray.is_initialized() and time.monotonic() < until:
    time.sleep(0.1)
print(ray.is_initialized(), run("second")["rounds"])
"""


@pytest.fixture(scope="module")
def own_ray():
    """What a process of its own finds that has started nothing else: no cluster, and no actors that hold all CPUs."""
    environment = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    command = [sys.executable, "-c", OWN_RAY]
    child = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300, env=environment)
    return json.loads(child.stdout.splitlines()[-1])


def test_every_socket_is_on_the_loopback_address(own_ray):
    found = [(name, ip_address(address)) for name, address in own_ray["sockets"]]
    assert {"gcs_server", "raylet"} <= {name for name, _ in found}
    outside = [(name, str(address)) for name, address in found if not _is_loopback(address)]
    assert outside == []


def test_what_only_clusters_browsers_and_logs_need_is_not_started(own_ray):
    commands = [" ".join(command) for command in own_ray["commands"]]
    assert any("raylet" in command for command in commands)
    needless = ("monitor.py", "dashboard.py") if find_spec("aiohttp_cors") is None else ("monitor.py",)  # ray[default]
    assert not [command for command in commands if any(name in command for name in needless)]


def test_the_threads_of_the_driver_and_of_its_workers_share_two_heaps(own_ray):
    assert own_ray["heaps"] == ["2", "2"]


def test_a_signal_to_the_group_of_the_process_leaves_ray_alone(own_ray):
    assert len(own_ray["group"]) == 1  # the process that has started Ray


def test_a_ray_that_a_thread_has_started_outlives_it(own_ray):
    assert {"gcs_server", "raylet"} <= {os.path.basename(command[0]) for command in own_ray["commands"] if command}


def test_a_ray_that_dies_after_a_run_ends_nothing_and_the_next_starts_another(softmax, tmp_path):
    (tmp_path / "softmax.tflite").write_bytes(softmax.content)
    command = [sys.executable, "-c", RUN_TWICE, "softmax.tflite"]
    child = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert (child.returncode, child.stdout) == (0, "False 1\n"), child.stderr


def _is_loopback(address):
    mapped = getattr(address, "ipv4_mapped", None)  # as `::ffff:127.0.0.1`, which Python 3.11 calls no loopback
    return (mapped or address).is_loopback
