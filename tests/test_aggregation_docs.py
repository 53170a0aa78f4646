"""The page on aggregation names what there is, and what it shows is run as it stands there."""

import re
from pathlib import Path
from typing import Any

import pytest

from odt_sim import Fleet, Simulation, TrainableModel, TrainingPlan
from odt_sim.aggregators import Krum, Mean
from odt_sim.strategies import FedAvg
from odt_sim.testing import random_data

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "aggregation.md").read_text()


def test_every_aggregator_is_in_the_table() -> None:
    named = re.findall(r"^\| `(\w+)` \| ", PAGE.partition("\n## ")[0], re.MULTILINE)
    assert sorted({*named} - {"aggregator"}) == sorted(
        path.stem for path in (ROOT / "conf" / "aggregator").glob("*.yaml")
    )


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#]+)\)", PAGE))
def test_links_lead_somewhere(link: str) -> None:
    assert (ROOT / "docs" / link).exists()


def test_the_examples(softmax: TrainableModel, tmp_path: Path) -> None:
    mine: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        exec(block, mine)
    data = random_data(softmax, [20] * 11)

    def loss(strategy: Any, aggregator: Any) -> float:
        directory = tmp_path / f"{strategy.name} {aggregator.name}"
        settings: dict[str, Any] = {"rounds": 3, "fleet": Fleet(), "evaluate_every": 3, "plan": TrainingPlan(1, 0.2)}
        summary = Simulation(softmax, data, strategy, directory=directory, aggregator=aggregator, **settings).run()
        return float(summary["metrics_train"]["loss"]["mean"])

    plain, flipped = loss(FedAvg(), Mean()), loss(mine["Flipped"](), Mean())
    assert plain < loss(mine["Flipped"](), Krum(4 / 11)) < flipped
    assert plain < loss(FedAvg(), mine["Halves"]()) < flipped
