"""Limits on connections: who may connect, how many at once, and how long a request may take to arrive.

They hold before a request is read, since whoever reaches the port needs no token to open a connection.
"""

import asyncio
import resource
import socket
from typing import Any
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.h11_impl import H11Protocol

from odt_sim.phone.guard import is_local

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
