"""The command in this process, and a working folder for it."""

import sys

import pytest

from odt_sim.cli.main import main

MINE = """
import os
import sys
import time
from pathlib import Path

from hydra.experimental.callback import Callback
from odt_sim import Strategy

class Tell(Callback):
    def on_job_end(self, config, job_return, **kwargs):
        with open("told", "a") as file:
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


class Interrupted(Strategy):
    rounds = 0

    def aggregate(self, state, updates):
        self.rounds += 1
        if self.rounds == 2:
            raise KeyboardInterrupt
        return super().aggregate(state, updates)


class Exits(Strategy):
    def init(self, initial):
        sys.exit("no reason")


class Occupies(Strategy):
    def aggregate(self, state, updates):
        Path("here/failure.json").mkdir()
        raise RuntimeError("told")


class Slow(Strategy):
    def local(self, device, broadcast):
        time.sleep(60 if Path("hang").exists() else 0.02)
        return super().local(device, broadcast)
"""


@pytest.fixture
def odt_sim(capsys):
    """Returns a function that runs the command in this process: exit code, standard output, standard error."""

    def run(*arguments):
        code = main(list(arguments))
        return (code, *capsys.readouterr())

    return run


@pytest.fixture
def folder(tmp_path, monkeypatch, digits_mlp):
    """A working folder with strategies of the user's own; the model is exported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "mine.py").write_text(MINE)
    yield tmp_path
    sys.modules.pop("mine", None)
