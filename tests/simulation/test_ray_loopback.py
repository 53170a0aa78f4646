"""A Ray that odt_sim starts talks to this machine alone."""

import json
import subprocess
import sys
from ipaddress import ip_address

OWN_RAY = """
import json, psutil, ray
from odt_sim.simulation.ray import RayBackend
RayBackend().start()
ray.get(ray.remote(lambda: None).remote())  # a worker has sockets, too
print(json.dumps([
    (process.name(), connection.laddr.ip)
    for process in (psutil.Process(), *psutil.Process().children(recursive=True))
    for connection in process.net_connections(kind="inet")
    if connection.status == psutil.CONN_LISTEN or (connection.type == 2 and not connection.raddr)  # 2: UDP
]))
"""


def test_every_socket_is_on_the_loopback_address():
    """In a process of its own, which has started nothing else: no cluster, and no actors that hold all CPUs."""
    child = subprocess.run([sys.executable, "-c", OWN_RAY], check=True, capture_output=True, text=True, timeout=300)
    found = [(name, ip_address(address)) for name, address in json.loads(child.stdout.splitlines()[-1])]
    assert {"gcs_server", "raylet"} <= {name for name, _ in found}
    outside = [(name, str(address)) for name, address in found if not _is_loopback(address)]
    assert outside == []


def _is_loopback(address):
    mapped = getattr(address, "ipv4_mapped", None)  # as `::ffff:127.0.0.1`, which Python 3.11 calls no loopback
    return (mapped or address).is_loopback
