"""Server of the live page."""

from pathlib import Path

from odt_sim.phone.server import Server, address_of, listen
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
    app = watch_app(Sweep(folder), host, lambda: server.stopping)
    server = Server(app, listening)
    return server, address_of(listening, "").removesuffix("/")
