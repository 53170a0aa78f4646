"""A pytest plugin that reports where a worker of pytest-xdist crashed: otherwise only the test's name is known."""

import faulthandler
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest


def _file(worker: Mapping[str, Any]) -> Path:
    return Path(tempfile.gettempdir()) / f"odt_sim_crash_{worker['testrunuid']}_{worker['workerid']}"


@pytest.hookimpl(trylast=True)  # after pytest's own plugin, which writes to the terminal
def pytest_configure(config: pytest.Config) -> None:
    """Let a worker write the traceback of a crash to a file."""
    if worker := getattr(config, "workerinput", None):
        file = _file(worker)
        faulthandler.enable(file.open("w"))
        config.add_cleanup(lambda: file.unlink(missing_ok=True))


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(report: pytest.TestReport) -> None:
    """Add the traceback to the report of a crash; without one, the worker was killed, perhaps for lack of memory."""
    import psutil  # here: environments without pytest-xdist lack it

    file = _file(report.node.workerinput)
    traceback = (
        file.read_text() or f"no traceback; {psutil.virtual_memory().available >> 20} MB of memory are available"
    )
    file.unlink()
    report.longrepr = f"{report.longrepr}\n{traceback}"
