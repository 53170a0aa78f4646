"""Session fixtures for tests in Chromium: the browser, LiteRT.js from npm, and a static server for a page."""

import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from chromium import OPTIONS, PAGE, patient, program, served

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.phone)


@pytest.fixture(scope="session")
def assets() -> Path:
    """The folder for `--assets`, with LiteRT.js; installed if it is missing."""
    if not (HERE / "node_modules" / "@litertjs" / "core").exists():
        subprocess.run(["npm", "install", "--no-package-lock", "--no-audit", "--no-fund"], cwd=HERE, check=True)
    return HERE


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium, as Playwright's `Browser`."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program(), args=OPTIONS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[[Mapping[str, Path]], str]]:
    """Return a function that serves folders by their first path segment, and returns the address.

    The folder of "" is the root: `serve({"": PAGE, "assets": assets / "node_modules"})`.
    """
    with ExitStack() as servers:
        yield lambda folders: servers.enter_context(served(folders))


@pytest.fixture(scope="session")
def harness(browser: Any, serve: Callable[[Mapping[str, Path]], str], assets: Path) -> Iterator[Any]:
    """An empty page shared by the session: `litert.js` is at `./page/litert.js`, its assets at `./assets/`."""
    address = serve({"": HERE, "page": PAGE, "assets": assets / "node_modules"})
    page = patient(browser.new_page())
    page.goto(f"{address}/harness.html")
    yield page
    page.close()
