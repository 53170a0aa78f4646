"""The typed example of a user runs; `make check` checks its types, and that mypy finds the mistakes in `wrong.py`."""

import json
from pathlib import Path

import research

from odt_sim import TrainableModel


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
