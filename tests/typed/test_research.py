"""The typed example of a user runs; `make check` checks its types."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import research

from odt_sim import TrainableModel

WRONG = """
import numpy as np
from odt_sim import Strategy, Device, Weights
from odt_sim.aggregators.base import with_numbers
from odt_sim.strategies.base import Tensors

class Wrong(Strategy):
    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        return 0.5 * (super().deploy(device, broadcast) + device.parameters())

    def local(self, device: Device, broadcast: object) -> float:
        return device.train(epochs="one")

def rounded(weights: Weights) -> Weights:
    return with_numbers(weights, np.round(weights.vector, 3))

reveal_type(rounded)
"""


def test_typed_research_runs(digits_mlp: TrainableModel, tmp_path: Path) -> None:
    summary, observer = research.simulate(digits_mlp, tmp_path)
    assert (summary.strategy, summary.rounds, summary.unseen) == ("Halfway", 2, 1)
    assert len(observer.losses) == 2
    rows = [json.loads(line) for line in (tmp_path / "devices.jsonl").read_text().splitlines()]
    assert any(row.get("largest_loss", 0) > 0 for row in rows)


def test_typed_device_runs(digits_mlp: TrainableModel) -> None:
    sure, figures = research.confidence(digits_mlp)
    assert 0.1 < sure <= 1
    assert figures["examples"] == 32


@pytest.mark.slow
def test_wrong_types_are_found_in_user_code(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(tmp_path), "wrong.py"]
    source = {"MYPYPATH": str(Path(__file__).parents[2]), "PATH": ""}
    child = subprocess.run(command, cwd=tmp_path, env=source, capture_output=True, text=True, timeout=600)
    found = [line.partition(": ")[2] for line in child.stdout.splitlines() if line.startswith("wrong.py")]
    assert any("[override]" in line for line in found), child.stdout + child.stderr
    assert any('"epochs"' in line and "[arg-type]" in line for line in found), child.stdout
    assert not any("operand" in line for line in found), child.stdout
    assert not any("with_numbers" in line or "no-any-return" in line for line in found), child.stdout
