"""How long the torture lasts: short in every run of the tests, long by `make torture`."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="kill and repeat as often as docs/reliability.md says")


@pytest.fixture(scope="session")
def long(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--long", default=False))
