"""Damaged files, one after the other, in a process that must outlive them: a few in each test run, all by `make fuzz`."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fork_server import ForkServer
from outcomes import Outcomes, note

from odt_sim.model import verification
from odt_sim.persistence.files import cache_folder

LONG = os.environ.get("FUZZ") == "long"


@pytest.fixture(scope="session", autouse=True)
def audit() -> None:
    sys.addaudithook(note)


@pytest.fixture
def many() -> Callable[[int, int], int]:
    """Returns a function that chooses how many cases there are: of a test run, or of the long form."""
    return lambda few, all: all if LONG else few


@pytest.fixture
def outcomes(tmp_path: Path, capfd: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Iterator[Outcomes]:
    """What becomes of a test's cases, which may write below its folder, and export a model; told at its end."""
    found = Outcomes(tmp_path, cache_folder("models"))
    yield found
    with capfd.disabled():
        print(f"\n{request.node.name}: {dict(found.counts)}")


@pytest.fixture
def forks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    """Lets a fork try each file; the machine has tried none before."""
    monkeypatch.setenv("ODT_SIM_CACHE", str(tmp_path / "cache"))
    with closing(ForkServer()) as server:
        monkeypatch.setattr(verification, "tried", server.tried)
        monkeypatch.setattr(verification, "_fine", set())
        monkeypatch.setattr(verification, "SECONDS", 10.0)  # far more than these small files need
        yield server
