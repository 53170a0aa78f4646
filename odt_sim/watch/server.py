"""Server of the live page."""

import socket
from pathlib import Path

from odt_sim.phone.server import Server, address_of, lan_address, listen
from odt_sim.watch.app import watch_app
from odt_sim.watch.sweep import Sweep


def watch_server(folder: Path, host: str, port: int) -> tuple[Server, str]:
    """Return a listening server, not yet started, and the address of its page.

    Args:
        folder: The folder of the runs.
        host: An address of this machine; `0.0.0.0` for all.
        port: The port; 0 for a free one.

    Raises:
        ConfigurationError: The server cannot listen there.
    """
    listening = listen(host, port)
    names = [host, "localhost", "127.0.0.1", socket.gethostname(), lan_address()]
    app = watch_app(Sweep(folder), names, lambda: server.stopping)
    server = Server(app, listening)
    return server, address_of(listening, "").removesuffix("/")
