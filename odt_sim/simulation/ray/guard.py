"""Says why a run ends where Ray itself has died: Ray would end the process without a word, or a minute later."""

import select
import socket
import threading

import ray

from odt_sim import interrupt

SECONDS = 5.0  # between two looks at the control service of an own Ray; the node's own process is watched all the time


def guard(*, local: bool) -> None:
    """Watches, in a thread, the Ray that this process has started or joined.

    Args:
        local: Whether it is one of this process's own, which nobody repairs.
    """
    context = ray.get_runtime_context()
    here = context.get_node_id()
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(next(node["RayletSocketName"] for node in nodes if node["NodeID"] == here))
    control = context.gcs_address if local else None
    threading.Thread(target=_watch, args=(connection, control), daemon=True).start()


def _watch(connection: socket.socket, control: str | None) -> None:
    died = None
    while died is None:
        if select.select([connection], [], [], SECONDS)[0]:
            died = "the raylet of this node"
        elif control and not _answers(control):
            died = "its control service (GCS)"
    connection.close()
    if ray.is_initialized():  # else this process ends it
        if number := interrupt.received():  # as Ray's processes were, too
            interrupt.end(128 + number, "interrupted")
        interrupt.end(1, f"error: backend ray: Ray died, {died}; look at Ray's own logs")


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=SECONDS).close()
    except OSError:
        return False
    return True
