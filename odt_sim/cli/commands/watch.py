"""The command `odt-sim watch`: serve a live page of the runs in a folder."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from odt_sim._support.system import check_extra
from odt_sim.cli.command_table import parsed
from odt_sim.errors import ConfigurationError


def watch(arguments: Sequence[str]) -> int:
    """Serve the page until Ctrl-C and return the exit code."""
    options = parsed("watch", arguments)
    check_extra("watch")
    if not options.folder.is_dir():
        raise ConfigurationError(f"{options.folder}: does not exist; give a run's folder, or one that contains runs")
    serve(options.folder, options.host, options.port)
    return 0


def serve(folder: Path, host: str, port: int) -> None:
    """Print the address and serve until Ctrl-C.

    Raises:
        ConfigurationError: The server cannot listen there.
    """
    from odt_sim.watch.server import watch_server

    server, address = watch_server(folder, host, port)
    print(f"watching {folder}: {address}\nCtrl-C stops the page, not the runs.", flush=True)
    with suppress(KeyboardInterrupt):
        server.run()
    print("stopped")
