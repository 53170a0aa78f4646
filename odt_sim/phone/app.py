"""Web application that serves the page: static files, restrictive headers, and the caller's routes."""

import base64
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from odt_sim.errors import ConfigurationError
from odt_sim.phone.guard import Guard

PAGE = Path(__file__).with_name("page")
CDN = tuple(f"https://cdn.jsdelivr.net/npm/@litertjs/{package}@2.5.3/" for package in ("core", "wasm-utils"))
"""Folders from which a page loads LiteRT.js if `--assets` is not given; its import map has the modules' digests."""
INLINE = re.compile(r"<script[^>]*>(.*?)</script>", re.S)


def phone_app(
    token: str, host: str, *, page: str = "index.html", assets: Path | None = None, routes: Sequence[BaseRoute] = ()
) -> Starlette:
    """Return the application, with the page, its files, `settings.json`, `assets/` and more routes below `/<token>/`.

    Args:
        token: The secret in the address.
        host: The name or address that the server listens on.
        page: The file of `odt_sim/phone/page` that is served as `/<token>/`.
        assets: A folder in which `npm install @litertjs/core` was run; None to load it from a CDN.
        routes: Further routes below `/<token>/`; they take precedence over the page's files.

    Raises:
        ConfigurationError: `assets` does not contain LiteRT.js.
    """
    html = (PAGE / page).read_text()
    modules = [Mount("/assets", StaticFiles(directory=_modules(assets)))] if assets else []

    async def index(request: Request) -> Response:
        return HTMLResponse(html)

    async def settings(request: Request) -> Response:
        return JSONResponse({"assets": "assets/" if assets else None})

    inside = [Route("/", index), Route("/settings.json", settings), *modules, *routes]
    inside.append(Mount("/", StaticFiles(directory=PAGE)))
    return Starlette(
        routes=[Mount(f"/{token}", routes=inside)],
        middleware=[
            Middleware(Headers, policy=_policy(html, assets is None)),
            Middleware(Guard, token=token, host=host),
        ],
    )


class Headers:
    """Middleware that adds headers with which the browser restricts the page.

    The page may load scripts and data only from this server and, without `--assets`, LiteRT.js from the CDN. Its address,
    which contains the token, is never sent to another server. Cross-origin isolation enables threads and memory measurement.
    """

    def __init__(self, app: ASGIApp, policy: str) -> None:
        """Wrap an application with the content security policy of its page."""
        self._app = app
        values = {
            "content-security-policy": policy,
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
            "cache-control": "no-cache",
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-embedder-policy": "require-corp",
            "cross-origin-resource-policy": "same-origin",
        }
        self._added = [(name.encode(), value.encode()) for name, value in values.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *self._added]}
            await send(message)

        await self._app(scope, receive, with_headers)


async def body_of(request: Request, most: int) -> bytes:
    """Return the body of a request.

    Args:
        request: The request.
        most: The largest size, in bytes.

    Raises:
        HTTPException: 413 for a larger body; 400 if the client disconnects before its end.
    """
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > most:
                raise HTTPException(413, f"The upload exceeds {most:,} bytes; nothing was stored.")
    except ClientDisconnect as error:
        raise HTTPException(400, "The upload was incomplete; nothing was stored.") from error
    return bytes(body)


def _policy(html: str, from_cdn: bool) -> str:
    """Return the content security policy of the page, which allows WebAssembly."""
    digests = (hashlib.sha256(script.encode()).digest() for script in INLINE.findall(html) if script)
    inline = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    cdn = "".join(f" {folder}" for folder in CDN) if from_cdn else ""
    return (
        f"default-src 'self'; script-src 'self' 'wasm-unsafe-eval' {inline}{cdn}; connect-src 'self'{cdn}; "
        "img-src 'self' data: blob:; style-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def _modules(assets: Path) -> Path:
    modules = assets / "node_modules"
    if assets.exists() and not assets.is_dir():
        raise ConfigurationError(
            f"assets {assets}: expected a folder, found a file; give the folder that contains node_modules"
        )
    if not (modules / "@litertjs" / "core").is_dir():
        raise ConfigurationError(
            f"assets {assets}: does not contain LiteRT.js; in this folder, run: npm install @litertjs/core@2.5.3"
        )
    return modules
