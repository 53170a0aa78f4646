"""Session fixtures for tests in Chromium: the browser, LiteRT.js from npm, and a static server for a page."""

import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import which
from typing import Any, ClassVar

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "odt_sim" / "phone" / "page"
OPTIONS = (
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.phone)


@pytest.fixture(scope="session")
def assets() -> Path:
    """The folder that `--assets` takes, with LiteRT.js; installed if it is missing."""
    if not (HERE / "node_modules" / "@litertjs" / "core").exists():
        subprocess.run(["npm", "install", "--no-package-lock", "--no-audit", "--no-fund"], cwd=HERE, check=True)
    return HERE


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium, as Playwright's `Browser`."""
    from playwright.sync_api import sync_playwright

    path = which("chromium")
    assert path, "no program chromium; install Debian's package, or run make test-phone as root"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[[Mapping[str, Path]], str]]:
    """Return a function that serves folders by their first path segment, and gives the address.

    The folder of "" is the root: `serve({"": PAGE, "assets": assets / "node_modules"})`.
    """
    with ExitStack() as servers:
        yield lambda folders: servers.enter_context(_served(folders))


@pytest.fixture(scope="session")
def harness(browser: Any, serve: Callable[[Mapping[str, Path]], str], assets: Path) -> Iterator[Any]:
    """A page without content that shares a session: `litert.js` is at `./page/litert.js`, its assets at `./assets/`."""
    address = serve({"": HERE, "page": PAGE, "assets": assets / "node_modules"})
    page = browser.new_page()
    page.goto(f"{address}/harness.html")
    yield page
    page.close()


class _Handler(SimpleHTTPRequestHandler):
    extensions_map: ClassVar = {
        **SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".wasm": "application/wasm",
    }

    def __init__(self, *args: Any, folders: Mapping[str, Path]) -> None:
        self.folders = folders
        super().__init__(*args)

    def translate_path(self, path: str) -> str:
        first, _, rest = path.partition("?")[0].strip("/").partition("/")
        return str(self.folders[first] / rest if first in self.folders else self.folders[""] / first / rest)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def _served(folders: Mapping[str, Path]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, folders=folders)) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
