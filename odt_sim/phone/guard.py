"""Access control: only local clients with the token in the address, and only pages of this server."""

import hmac
import ipaddress
import socket
from urllib.parse import urlsplit

from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

Headers = dict[str, str]

LOCAL_ONLY = "This server only answers devices in its own network."
WRONG_HOST = "This server does not use that name; open the address shown in the terminal."
WRONG_TOKEN = (
    "The token in this address is wrong; scan the QR code again, or copy the complete address from the terminal."
)
WRONG_ORIGIN = "This request comes from a page of another server; open the address shown in the terminal."

SHARED = ipaddress.ip_network("100.64.0.0/10")
"""Addresses behind a carrier's NAT, and those of Tailscale (RFC 6598): never those of a client on the internet."""

CLOSE = {"connection": "close"}

READABLE = (
    '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    '<meta name="color-scheme" content="light dark"><title>odt_sim</title><p>'
)
"""HTML before a sentence that a person reads, since phones show plain text in tiny letters."""


class Guard:
    """Middleware that rejects requests with 403 and one sentence.

    A `Host` header with a name other than this machine's may indicate DNS rebinding, where a foreign page's name
    resolves to this machine.
    """

    def __init__(self, app: ASGIApp, token: str, host: str) -> None:
        """Wrap an application.

        Args:
            app: The application.
            token: The first component of every path.
            host: The name or address that the server was asked to listen on.
        """
        self._app, self._token, self._host = app, token, host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it."""
        refusal = self._refusal(scope) if scope["type"] in ("http", "websocket") else None
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await _refused(scope, refusal)(scope, receive, send)
        else:
            await WebSocketClose(1008, refusal)(scope, receive, send)

    def _refusal(self, scope: Scope) -> str | None:
        headers = _headers(scope)
        client = scope.get("client")
        if not (client and is_local(client[0])):
            return LOCAL_ONLY
        if not is_own(headers.get("host", ""), self._host):
            return WRONG_HOST
        first = scope["path"].removeprefix("/").partition("/")[0]
        if not hmac.compare_digest(first.encode(), self._token.encode()):
            return WRONG_TOKEN
        origin = headers.get("origin")  # None for a request that does not come from a page
        return None if origin is None or origin.partition("://")[2] == headers.get("host") else WRONG_ORIGIN


class OwnHost:
    """Middleware that rejects requests under names that are not this machine's, see `Guard`."""

    def __init__(self, app: ASGIApp, host: str) -> None:
        """Wrap an application that listens on a host."""
        self._app, self._host = app, host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it."""
        is_local_name = scope["type"] != "http" or is_own(_headers(scope).get("host", ""), self._host)
        await (self._app if is_local_name else _refused(scope, WRONG_HOST))(scope, receive, send)


def is_own(header: str, host: str) -> bool:
    """Return whether a `Host` header names this machine, by a name or by any address in a private network.

    Args:
        header: The header.
        host: The name or address that the server was asked to listen on.
    """
    try:
        name = (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return False
    machine = socket.gethostname().lower()
    return name in {"localhost", host.lower(), machine, f"{machine.removesuffix('.local')}.local"} or is_local(name)


def _headers(scope: Scope) -> Headers:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _refused(scope: Scope, sentence: str) -> Response:
    """Return the sentence as HTML for browser navigation, and as plain text for scripts; the connection then ends."""
    if "text/html" in _headers(scope).get("accept", ""):
        return HTMLResponse(READABLE + sentence, 403, CLOSE)
    return PlainTextResponse(sentence, 403, CLOSE)


def is_local(address: str) -> bool:
    """Return whether an address belongs to this machine or a private network; False for names."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        ip = ip.ipv4_mapped or ip
    return ip.is_private or ip in SHARED
