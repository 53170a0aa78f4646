"""A Ray that odt_sim starts talks to this machine alone."""

from ipaddress import ip_address

import psutil
import pytest
import ray


def listening():
    """Returns the addresses at which this process and what it has started listen, by the processes' names."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return [
        (process.name(), ip_address(connection.laddr.ip))
        for process in processes
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN or (connection.type == 2 and not connection.raddr)  # 2: UDP
    ]


@pytest.mark.usefixtures("ray_session")
def test_every_socket_is_on_the_loopback_address():
    ray.get(ray.remote(lambda: None).remote())  # a worker has sockets, too
    found = listening()
    assert {"gcs_server", "raylet"} <= {name for name, _ in found}
    outside = [(name, str(address)) for name, address in found if not _is_loopback(address)]
    assert outside == []


def _is_loopback(address):
    mapped = getattr(address, "ipv4_mapped", None)  # as `::ffff:127.0.0.1`, which Python 3.11 calls no loopback
    return (mapped or address).is_loopback
