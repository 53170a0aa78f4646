"""A Ray that odt_sim starts is small, reachable only from this machine, and lives as long as its process."""

import json
import subprocess
import sys
from ipaddress import ip_address

import pytest

LOCAL_RAY = """
from odt_sim.simulation.ray import RayBackend  # before ray, which reads its settings when it is imported
import json, psutil, ray, threading
starter = threading.Thread(target=RayBackend().start)
starter.start()
starter.join()
ray.get(ray.remote(lambda: None).remote())  # workers listen, too
processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
commands = [" ".join(process.cmdline()) for process in processes]
print(json.dumps((commands, [
    (process.name(), connection.laddr.ip)
    for process in processes
    for connection in process.net_connections(kind="inet")
    if connection.status == psutil.CONN_LISTEN or (connection.type == 2 and not connection.raddr)  # 2: UDP
])))
"""


@pytest.mark.slow
def test_local_ray_listens_on_loopback_and_outlives_the_starting_thread():
    child = subprocess.run([sys.executable, "-c", LOCAL_RAY], check=True, capture_output=True, text=True, timeout=300)
    commands, listening = json.loads(child.stdout.splitlines()[-1])
    sockets = [(name, ip_address(address)) for name, address in listening]
    assert {"gcs_server", "raylet"} <= {name for name, _ in sockets}
    assert [(name, str(address)) for name, address in sockets if not _is_loopback(address)] == []
    assert [command for command in commands if "monitor.py" in command] == []  # 150 MB of services that no run uses


def _is_loopback(address):
    mapped = getattr(address, "ipv4_mapped", None)  # Python 3.11 does not call `::ffff:127.0.0.1` a loopback address
    return (mapped or address).is_loopback
