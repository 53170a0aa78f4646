"""Notices where Ray itself has died: Ray would end the process without a word, or a minute later, or never."""

import select
import socket
import threading

import ray

from odt_sim.cli import interrupt

SECONDS = 5.0  # between two looks at the control service of an own Ray; the node's own process is watched all the time

settled = threading.Lock()
"""Held by who starts Ray, joins a cluster, or gives up a Ray that has died."""

_users: set[object] = set()


def use(user: object) -> None:
    """Lets the process end, with a line that says why, where Ray dies from now on."""
    with settled:  # a Ray that is dead already is given up before
        _users.add(user)


def disuse(user: object) -> None:
    """Lets the process live, for its user, where Ray dies from now on; Ray is given up then, and may be started again."""
    _users.discard(user)


def guard(*, local: bool) -> None:
    """Watches, in a thread, the Ray that this process has started or joined.

    Args:
        local: Whether it is one of this process's own, which nobody repairs.
    """
    context = ray.get_runtime_context()
    here, session = context.get_node_id(), context.get_session_name()
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(next(node["RayletSocketName"] for node in nodes if node["NodeID"] == here))
    control = context.gcs_address if local else None
    threading.Thread(target=_watch, args=(connection, control, session), daemon=True).start()


def _watch(connection: socket.socket, control: str | None, session: str) -> None:
    died = None
    while died is None:
        if select.select([connection], [], [], SECONDS)[0]:
            died = "the raylet of this node"
        elif control and not _answers(control):
            died = "its control service (GCS)"
    connection.close()
    with settled:
        if ray.is_initialized() and session == ray.get_runtime_context().get_session_name():  # else we have ended it
            _give_up(died)


def _give_up(died: str) -> None:
    if not _users:
        ray.shutdown()
    elif number := interrupt.received():  # as Ray's processes were, too
        interrupt.end(128 + number, "interrupted")
    else:
        interrupt.end(1, f"error: backend ray: Ray died, {died}; look at Ray's own logs")


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=SECONDS).close()
    except OSError:
        return False
    return True
