"""Fixtures for damaged files in a process that must survive them: a few in each test run, all by `make fuzz`."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from outcomes import Outcomes, note

from odt_sim._support.files import cache_folder
from odt_sim.model.reading import verification

LONG = os.environ.get("FUZZ") == "long"


@pytest.fixture(scope="session", autouse=True)
def audit() -> None:
    sys.addaudithook(note)


@pytest.fixture
def many() -> Callable[[int, int], int]:
    """Return a function that chooses the number of cases: for a test run, or for the long form."""
    return lambda few, all: all if LONG else few


@pytest.fixture
def outcomes(tmp_path: Path, capfd: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Iterator[Outcomes]:
    """The outcomes of a test's cases, printed at the end; cases may write to its folder and export a model."""
    found = Outcomes(tmp_path, cache_folder("models"))
    yield found
    with capfd.disabled():
        print(f"\n{request.node.name}: {dict(found.counts)}")


@pytest.fixture
def unverified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify each file, with an empty cache of verified ones."""
    monkeypatch.setenv("ODT_SIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(verification, "_verified", set())
    monkeypatch.setattr(verification, "SECONDS", 10.0)  # far more than these small files need
