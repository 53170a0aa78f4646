"""Chromium, and a static server for a page."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import which
from typing import Any, ClassVar

PAGE = Path(__file__).parents[2] / "odt_sim" / "phone" / "page"
OPTIONS = (
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Suggestions under the address bar, which each window loads, cost more than the page. Chromium uses the last
    # list of features, so it repeats those of Playwright's list that concern pages.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,PaintHolding,HttpsUpgrades,HttpsFirstBalancedModeAutoEnable,"
    "AvoidUnnecessaryBeforeUnloadCheckSync,DestroyProfileOnBrowserClose,ThirdPartyStoragePartitioning,MediaRouter,"
    "OptimizationHints,NetworkTimeServiceQuerying,LensOverlay,PreconnectToSearch",
)
MINUTES = 120_000  # milliseconds; the machine may be busy


def patient(place: Any) -> Any:
    """Return a page or a context after raising its timeouts from Playwright's 30 seconds to minutes."""
    place.set_default_timeout(MINUTES)
    return place


def program() -> str:
    """Return the path of Chromium."""
    path = which("chromium")
    assert path, "no program chromium; install Debian's package, or run make test-phone as root"
    return path


@contextmanager
def served(folders: Mapping[str, Path]) -> Iterator[str]:
    """Serve folders by their first path segment on loopback, and yield the address; the folder of "" is the root."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, folders=folders)) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def module(page: Any, name: str, body: str, argument: Any = None) -> Any:
    """Run the body of an async function of `given` and a module's exports `m`."""
    script = f"async (given) => {{ const m = await import('./page/{name}.js'); {body} }}"
    return page.evaluate(script, argument)


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
