"""Server of the live page: the page, its files, and a stream of changes."""

import json
import time
from asyncio import sleep
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from odt_sim._support.files import rendered
from odt_sim.phone.app import PAGE as PHONE_PAGE
from odt_sim.phone.guard import OwnHost
from odt_sim.phone.server import Server, address_of, listen
from odt_sim.watch.jobs import Sweep

PAGE = Path(__file__).with_name("page")
POLL_SECONDS = 0.5
HEARTBEAT_SECONDS = 5.0
"""Interval of heartbeats; a page that receives nothing for several heartbeats reconnects."""

NO_CACHE = {"cache-control": "no-cache", "x-accel-buffering": "no"}


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
    app = _app(Sweep(folder), host, lambda: server.stopping)
    server = Server(app, listening)
    return server, address_of(listening, "").removesuffix("/")


def _app(sweep: Sweep, host: str, stopping: Callable[[], bool]) -> Starlette:
    html = rendered(
        "watch.html", "odt_sim.watch", "odt_sim.report", title=sweep.folder.absolute().name, folder=str(sweep.folder)
    )

    async def index(request: Request) -> Response:
        return HTMLResponse(html, headers=NO_CACHE)

    async def elements(request: Request) -> Response:
        return FileResponse(PHONE_PAGE / "dom.js", headers=NO_CACHE)

    async def events(request: Request) -> Response:
        return StreamingResponse(messages(sweep, stopping), media_type="text/event-stream", headers=NO_CACHE)

    return Starlette(
        routes=[
            Route("/", index),
            Route("/events", events),
            Route("/dom.js", elements),
            Mount("/", _Files(directory=PAGE)),
        ],
        middleware=[Middleware(OwnHost, host=host)],
    )


async def messages(sweep: Sweep, stopping: Callable[[], bool]) -> AsyncIterator[str]:
    """Yield server-sent events: first all jobs, then changed jobs, or none as a heartbeat.

    Each event has `now` (seconds since 1970), `order` (the ids of all jobs) and `jobs` (the changed jobs).
    """
    sent: dict[str, Any] = {}
    said, first = 0.0, True
    yield "retry: 1000\n\n"
    while not stopping():
        current = {job["id"]: job for job in await run_in_threadpool(sweep.jobs)}
        changed = [job for name, job in current.items() if sent.get(name) != job]
        if first or changed or list(current) != list(sent) or time.monotonic() - said >= HEARTBEAT_SECONDS:
            yield f"data: {json.dumps({'now': time.time(), 'order': list(current), 'jobs': changed})}\n\n"
            sent, said, first = current, time.monotonic(), False
        await sleep(POLL_SECONDS)


class _Files(StaticFiles):
    """Static files that a browser revalidates, so that it loads new ones after an upgrade."""

    def file_response(self, *given: Any, **named: Any) -> Response:
        response = super().file_response(*given, **named)
        response.headers.update(NO_CACHE)
        return response
