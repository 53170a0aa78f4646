"""Local web server, with its socket, address, QR code and TLS."""

import errno
import io
import logging
import socket
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Self

import uvicorn
from starlette.types import ASGIApp

from odt_sim.errors import ConfigurationError
from odt_sim.phone.connections import ListeningSocket, PunctualHttp
from odt_sim.phone.guard import is_local

EVERY_ADDRESS = ("", "0.0.0.0", "::")
SECONDS_TO_STOP = 3
SECONDS_TO_START = 30


@dataclass(frozen=True)
class Tls:
    """Certificate and key in PEM format."""

    certificate: Path
    key: Path

    def check(self) -> Self:
        """Check that both can be read and match.

        Raises:
            ConfigurationError: They cannot be used.
        """
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(self.certificate, self.key)
        except OSError as error:  # includes SSLError
            raise ConfigurationError(
                f"--certificate {self.certificate}, --key {self.key}: cannot use them ({error.strerror or error}); "
                "give PEM files of a certificate and its key"
            ) from error
        return self


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket that limits connections (see `connections`).

    Args:
        host: An address of this machine; `0.0.0.0` for all.
        port: The port; 0 for a free one.

    Raises:
        ConfigurationError: The address does not belong to this machine, or the port is in use.
    """
    listening = ListeningSocket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen()
    except (OSError, OverflowError) as error:
        listening.close()
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise ConfigurationError(
                f"--port {port}: another program listens there; stop it, or choose another port (0 for a free one)"
            ) from error
        raise ConfigurationError(
            f"--host {host} --port {port}: cannot listen there ({error}); give an address of this machine and "
            "a port up to 65535"
        ) from error
    return listening


def address_of(listening: socket.socket, token: str, tls: Tls | None = None) -> str:
    """Return the address that phones open, such as `http://192.168.1.5:8765/<token>/`."""
    host, port = listening.getsockname()[:2]
    host = lan_address() if host in EVERY_ADDRESS else host
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}/{token}/"


def lan_address() -> str:
    """Return this machine's address in its local network; the loopback address if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address reserved for documentation (RFC 5737); nothing is sent
        except OSError:
            return "127.0.0.1"
        address = str(probe.getsockname()[0])
    return address if is_local(address) else "127.0.0.1"


def qr_code(address: str) -> str:
    """Return the QR code of an address as text for a terminal."""
    import segno

    text = io.StringIO()
    segno.make(address, error="l", micro=False).terminal(text, compact=True, border=2)
    return text.getvalue().rstrip("\n")


class Server:
    """Web server on a socket, in the foreground (`run`) or in a thread (`with`)."""

    def __init__(
        self, app: ASGIApp, listening: socket.socket, tls: Tls | None = None, largest_message: int = 1 << 24
    ) -> None:
        """Prepare a server.

        Args:
            app: The application.
            listening: The socket from `listen`; the server closes it.
            tls: The certificate; None for plain HTTP.
            largest_message: The largest WebSocket message, in bytes.
        """
        logging.getLogger("uvicorn.error").addFilter(_worth_printing)
        self._sockets = [listening]
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                loop="asyncio",  # whose event loop calls `ListeningSocket.accept`
                http=PunctualHttp,
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                proxy_headers=False,  # a header must not make a client look local
                ws_max_size=largest_message,
                timeout_graceful_shutdown=SECONDS_TO_STOP,
                ssl_certfile=tls.certificate if tls else None,
                ssl_keyfile=tls.key if tls else None,
            )
        )
        self._thread = Thread(target=self.run, daemon=True)

    def run(self) -> None:
        """Serve until a signal, or until `__exit__` stops the server.

        Raises:
            KeyboardInterrupt: After Ctrl-C, when all connections are closed.
        """
        self._server.run(self._sockets)

    @property
    def stopping(self) -> bool:
        """Whether the server is waiting for its connections to end."""
        return self._server.should_exit

    def __enter__(self) -> Self:
        """Serve in a thread, and return when the server has started."""
        self._thread.start()
        deadline = time.monotonic() + SECONDS_TO_START
        while not self._server.started and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        return self

    def __exit__(self, *raised: object) -> None:
        """Stop the server and close its connections."""
        self._server.should_exit = True
        self._thread.join(2 * SECONDS_TO_STOP)


def _worth_printing(record: logging.LogRecord) -> bool:
    """Return False for uvicorn's error about a browser that does not close its TLS connection in time."""
    return not str(record.msg).startswith("Cancel %s running task(s)")
