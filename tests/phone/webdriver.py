"""Firefox by WebDriver BiDi, and WebKitGTK's MiniBrowser by WebDriver: the other browser engines of phones."""

import json
import os
import re
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Any, Protocol

SECONDS = 120.0  # timeout for short waits; the machine may be busy
NO_DESKTOP = {  # without them, GTK waits half a minute for services
    "DBUS_SESSION_BUS_ADDRESS": "disabled:",
    "GDK_BACKEND": "x11",
    "GSETTINGS_BACKEND": "memory",
    "GTK_USE_PORTAL": "0",
    "NO_AT_BRIDGE": "1",
}


class Browser(Protocol):
    """A browser with one page."""

    def open(self, address: str) -> None:
        """Load a page."""

    def evaluate(self, expression: str) -> Any:
        """Return the JSON value of an expression in the page."""


def wait_for(browser: Browser, expression: str) -> Any:
    """Return the first true value of an expression."""
    until = monotonic() + SECONDS
    while not (found := browser.evaluate(expression)):
        assert monotonic() < until, f"not true in time: {expression}; the page: {browser.evaluate(PAGE_TEXT)}"
        sleep(0.1)
    return found


PAGE_TEXT = "document.body.innerText"


class Firefox:
    """Firefox, with its built-in WebDriver BiDi server."""

    def __init__(self, connection: Any) -> None:
        self._connection, self._ids = connection, count(1)
        self._ask("session.new", capabilities={})
        self._context = self._ask("browsingContext.getTree")["contexts"][0]["context"]

    def _ask(self, method: str, **params: Any) -> Any:
        id = next(self._ids)
        self._connection.send(json.dumps({"id": id, "method": method, "params": params}))
        while (answer := json.loads(self._connection.recv(timeout=SECONDS))).get("id") != id:
            pass  # an event
        assert answer["type"] == "success", answer
        return answer["result"]

    def open(self, address: str) -> None:
        self._ask("browsingContext.navigate", context=self._context, url=address, wait="complete")

    def evaluate(self, expression: str) -> Any:
        script = {"expression": f"JSON.stringify({expression})", "target": {"context": self._context}}
        answer = self._ask("script.evaluate", awaitPromise=True, **script)
        assert answer["type"] == "success", answer
        return json.loads(answer["result"].get("value", "null"))


class WebKit:
    """WebKitGTK behind WebKitWebDriver."""

    def __init__(self, address: str) -> None:
        self._address = address
        options = {"binary": _mini_browser(), "args": ["--automation"]}
        capabilities = {"browserName": "MiniBrowser", "webkitgtk:browserOptions": options}
        session = self._ask("session", {"capabilities": {"alwaysMatch": capabilities}})
        self._address += f"/session/{session['sessionId']}"

    def _ask(self, path: str, body: Any) -> Any:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._address}/{path}", json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error

    def open(self, address: str) -> None:
        self._ask("url", {"url": address})

    def evaluate(self, expression: str) -> Any:
        return self._ask("execute/sync", {"script": f"return {expression}", "args": []})


def _mini_browser() -> str:
    return str(next(Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser")))


@contextmanager
def started(name: str, home: Path) -> Iterator[Browser]:
    """Start `firefox` or `webkit` without a screen and without stored data."""
    with (firefox if name == "firefox" else webkit)(home) as browser:
        yield browser


@contextmanager
def firefox(home: Path) -> Iterator[Firefox]:
    from websockets.sync.client import connect

    command = ["firefox-esr", "--headless", "--no-remote", "--profile", str(home), "--remote-debugging-port", "0"]
    with _running(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stderr
        address = _first(process.stderr, r"BiDi listening on (ws://\S+)")
        with connect(f"{address}/session", max_size=None, ping_interval=None) as connection:
            yield Firefox(connection)


@contextmanager
def webkit(home: Path) -> Iterator[WebKit]:
    screen = ["Xvfb", "-displayfd", "1", "-screen", "0", "1280x1024x24", "-nolisten", "tcp"]
    with _running(screen, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as display:
        assert display.stdout
        number = _first(display.stdout, "([0-9]+)")
        own = {"DISPLAY": f":{number}", "HOME": str(home), "XDG_RUNTIME_DIR": str(home)}
        port = _free_port()
        driver = ["WebKitWebDriver", f"--port={port}"]
        with _running(driver, env={**os.environ, **NO_DESKTOP, **own}, stderr=subprocess.DEVNULL):
            _listening(port)
            yield WebKit(f"http://127.0.0.1:{port}")


@contextmanager
def _running(command: list[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, **options)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(SECONDS)
        for output in filter(None, (process.stdout, process.stderr)):
            output.close()


def _first(output: IO[bytes], pattern: str) -> str:
    """Return the group of the first line that matches a pattern."""
    for line in output:
        if found := re.search(pattern, line.decode()):
            return found[1]
    raise AssertionError(f"ended without {pattern}")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _listening(port: int) -> None:
    until = monotonic() + SECONDS
    while monotonic() < until:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        sleep(0.05)
    raise AssertionError("WebKitWebDriver does not listen")
