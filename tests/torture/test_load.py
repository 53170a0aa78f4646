"""Long runs and long sweeps do not leak memory, descriptors, threads or files."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from disturbed import COMMAND
from weighing import weigh

from odt_sim.cli.hydra import build as configuration
from odt_sim.cli.hydra.overrides import composed
from odt_sim.observers.base import Observer

TINY = ["model=softmax", "fleet.devices=8", "fleet.unseen=2", "train.steps=1"]
GROWTH = {"megabytes": 3.0, "descriptors": 2, "threads": 2, "files": 12}
"""The growth allowed from the third to the last quarter, for the allocator's noise."""


def assert_no_growth(weights: list[dict[str, float]]) -> None:
    """Compare the last two quarters of evenly spaced measurements; caches fill up in the first half."""
    early, late = np.array_split(np.arange(len(weights) // 2, len(weights)), 2)
    for what in weights[0]:
        before, after = (float(np.median([weights[index][what] for index in half])) for half in (early, late))
        print(f"{what}: {weights[0][what]:.1f} at first, {before:.1f}, {after:.1f} at last {weights[-1][what]:.1f}")
        assert after <= before + GROWTH[what], what


@pytest.fixture(params=[["backend=serial"], ["backend=ray", "backend.actors=2"]], ids=["serial", "ray"])
def backend(request, long):
    if request.param != ["backend=serial"] and not long:
        pytest.skip("the short form runs one backend; see make torture")
    return request.param


def test_long_run_does_not_leak(backend, long, softmax, tmp_path):
    """Ditto stores a model for every device."""
    rounds = 2000 if long else 200
    run = configuration.simulation(composed([*TINY, *backend, "strategy=ditto", f"run.rounds={rounds}"]), tmp_path)
    weights = []

    class Weighs(Observer):
        def on_round(self, record):
            if record["round"] % (rounds // 20) == 0:
                weights.append({**weigh(), "files": sum(path.is_file() for path in tmp_path.rglob("*"))})

    run.run(observers=[Weighs()])
    assert_no_growth(weights)


def test_long_sweep_does_not_leak(backend, long, softmax, tmp_path):
    jobs = 50 if long else 6
    given = [*TINY, *backend, "run.rounds=2", "strategy=ditto", "tracker._target_=weighing.Weighs"]
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [*COMMAND, "run", "-m", *given, f"seed=range({jobs})"]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, check=True, capture_output=True)
    assert len(list(tmp_path.rglob("summary.json"))) == jobs
    assert_no_growth([json.loads(line) for line in (tmp_path / "weights.jsonl").read_text().splitlines()])
