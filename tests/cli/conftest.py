"""Fixtures that run the command in this process, and a working folder with strategies of a user."""

import sys

import pytest

from odt_sim.cli.commands.run import launch
from odt_sim.cli.main import main
from odt_sim.errors import OdtSimError

MINE = """
import os
import sys
import time
from pathlib import Path

from hydra.experimental.callback import Callback
from odt_sim import Strategy


class WriteValue(Callback):
    def on_job_end(self, config, job_return, **kwargs):
        with open("values", "a") as file:
            print(job_return.return_value, file=file)


class Halfway(Strategy):
    def deploy(self, device, broadcast):
        before = super().deploy(device, broadcast)
        device.train(epochs=1)
        device.records["process"] = os.getpid()
        return 0.5 * (before + device.parameters())


class Surprises(Strategy):
    def check(self, model):
        raise AttributeError("a bug")


class FailsOnce(Strategy):
    def aggregate(self, state, updates):
        if not Path("failed").exists() and Path("almost").exists():
            Path("failed").touch()
            raise RuntimeError("once")
        Path("almost").touch()
        return super().aggregate(state, updates)


class InterruptsBetweenJobs(Callback):
    def on_job_start(self, config, **_):
        raise KeyboardInterrupt


class Interrupted(Strategy):
    rounds = 0

    def aggregate(self, state, updates):
        self.rounds += 1
        if self.rounds == 2:
            raise KeyboardInterrupt
        return super().aggregate(state, updates)


class Exits(Strategy):
    def check(self, model):
        sys.exit("no reason")


class Occupies(Strategy):
    def aggregate(self, state, updates):
        Path("here/failure.json").mkdir()
        raise RuntimeError("the reason")


class Slow(Strategy):
    def local(self, device, broadcast):
        time.sleep(60 if Path("hang").exists() else 0.02)
        return super().local(device, broadcast)
"""


@pytest.fixture
def odt_sim(capsys):
    """Return a function that runs the command in this process: exit code, standard output, standard error."""

    def call(*arguments):
        code = main(list(arguments))
        return (code, *capsys.readouterr())

    return call


@pytest.fixture
def run(capsys):
    """Return a function that runs `odt-sim run` without its report: exit code, standard error."""

    def call(*arguments):
        try:
            code = min(launch(arguments).failed, 1)
        except OdtSimError as error:
            code = 1
            print(f"error: {error}", file=sys.stderr)
        return code, capsys.readouterr().err

    return call


@pytest.fixture
def folder(tmp_path, monkeypatch, digits_mlp):
    """A working folder with strategies of a user; the model is exported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "mine.py").write_text(MINE)
    yield tmp_path
    sys.modules.pop("mine", None)
