"""A Ray that odt_sim starts talks to this machine alone, and has no process that it does not need."""

import json
import subprocess
import sys
from ipaddress import ip_address

import pytest

OWN_RAY = """
import json, psutil, ray
from odt_sim.simulation.ray import RayBackend
RayBackend().start()
ray.get(ray.remote(lambda: None).remote())  # a worker has sockets, too
processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
print(json.dumps({
    "commands": [process.cmdline() for process in processes],
    "sockets": [
        (process.name(), connection.laddr.ip)
        for process in processes
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN or (connection.type == 2 and not connection.raddr)  # 2: UDP
    ],
}))
"""


@pytest.fixture(scope="module")
def own_ray():
    """What a process of its own finds that has started nothing else: no cluster, and no actors that hold all CPUs."""
    child = subprocess.run([sys.executable, "-c", OWN_RAY], check=True, capture_output=True, text=True, timeout=300)
    return json.loads(child.stdout.splitlines()[-1])


def test_every_socket_is_on_the_loopback_address(own_ray):
    found = [(name, ip_address(address)) for name, address in own_ray["sockets"]]
    assert {"gcs_server", "raylet"} <= {name for name, _ in found}
    outside = [(name, str(address)) for name, address in found if not _is_loopback(address)]
    assert outside == []


def test_what_only_clusters_browsers_and_logs_need_is_not_started(own_ray):
    commands = [" ".join(command) for command in own_ray["commands"]]
    assert any("raylet" in command for command in commands)
    assert not [command for command in commands if "monitor.py" in command or "dashboard.py" in command]


def _is_loopback(address):
    mapped = getattr(address, "ipv4_mapped", None)  # as `::ffff:127.0.0.1`, which Python 3.11 calls no loopback
    return (mapped or address).is_loopback
