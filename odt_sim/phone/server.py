"""Local web server, with limits on connections, its address, QR code and TLS."""

import asyncio
import errno
import io
import logging
import resource
import socket
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, Self
from weakref import WeakKeyDictionary

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from odt_sim.errors import ConfigurationError
from odt_sim.phone.guard import is_local

EVERY_ADDRESS = ("", "0.0.0.0", "::")
SECONDS_TO_STOP = 3
SECONDS_TO_START = 30

REQUEST_SECONDS = 10.0
"""The time in which a client must send a first complete request."""

MOST_CONNECTIONS = 2048
"""The largest number of connections at a time; a page has up to 7."""

SHARE_OF_DESCRIPTORS = 2
"""One of this many file descriptors of the process may be a connection; the run needs the others for its files."""

SHARE_OF_CONNECTIONS = 4
"""One of this many connections may come from a single address."""


class ListeningSocket(socket.socket):
    """A listening socket that closes connections from outside the local network, and those beyond the limits.

    An event loop of asyncio takes a `ConnectionAbortedError` of `accept` for a client that has gone.
    """

    def __init__(self, family: int) -> None:
        """Create a TCP socket of an address family."""
        super().__init__(family, socket.SOCK_STREAM)
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.most = min(MOST_CONNECTIONS, descriptors // SHARE_OF_DESCRIPTORS)
        self._hosts: WeakKeyDictionary[socket.socket, str] = WeakKeyDictionary()

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection and its address.

        Raises:
            ConnectionAbortedError: It was refused.
        """
        connection, address = super().accept()
        hosts = [host for other, host in self._hosts.items() if other.fileno() >= 0]  # of open connections
        of_one_address = self.most // SHARE_OF_CONNECTIONS
        if len(hosts) >= self.most or hosts.count(address[0]) >= of_one_address or not is_local(address[0]):
            connection.close()
            raise ConnectionAbortedError
        self._hosts[connection] = address[0]
        return connection, address


class PunctualHttp(H11Protocol):
    """HTTP whose connections end if no complete request arrives in time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time of a connection."""
        super().connection_made(transport)
        self.loop.call_later(REQUEST_SECONDS, self._end_without_request)

    def _end_without_request(self) -> None:
        if self.scope is None:
            self.transport.abort()


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
    """Return a listening socket that limits connections.

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
