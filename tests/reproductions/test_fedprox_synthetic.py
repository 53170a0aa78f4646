"""Some rounds of the FedProx Synthetic experiment equal plain numpy on the same splits."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf
from orders import orders

from odt_sim import TrainableModel
from odt_sim.cli.commands.run import launch
from odt_sim.cli.hydra.build import federated
from odt_sim.cli.hydra.overrides import composed
from odt_sim.data.devices.federated import FederatedData
from odt_sim.data.sources.fedprox_synthetic import synthetic
from odt_sim.device.runtime import Runtime
from odt_sim.persistence.run_folder import RunFolder
from odt_sim.simulation.run.cohort import choose_cohort, choose_stragglers

EXPERIMENT = Path(__file__).parents[2] / "conf" / "experiment" / "reproduce" / "fedprox_synthetic.yaml"
FEW = ["run.rounds=3", "train.epochs=4", "data={alpha: 1, beta: 1}", "data.users=5", "fleet.cohort=4"]
RATE, BATCH = 0.01, 10
STRATEGIES = OmegaConf.load(EXPERIMENT).hydra.sweeper.params.strategy.split(",")


@dataclass
class Rounds:
    """One run in plain numpy; weights are flat vectors `[610]`."""

    config: DictConfig
    data: FederatedData
    softmax: Any
    mu: float
    keeps_parts: bool

    def weights(self, w: Any) -> Any:
        for round in range(1, 4):
            cohort = choose_cohort(np.arange(5), 4, 0, round).tolist()
            slow = choose_stragglers(cohort, self.config.fleet.stragglers, 0, round)
            counted = [device for device in cohort if self.keeps_parts or device not in slow]
            trained = [self.descended(w, device, round, slow) for device in counted]
            w = np.average(trained, axis=0, weights=self.data.train_sizes[counted])
        return w

    def descended(self, w: Any, device: int, round: int, slow: set[int]) -> Any:
        start, epochs = w, 4
        if device in slow:
            epochs = int(generator(device, round, "stragglers").integers(1, 4))
        for x, y in self.batches(device, round, epochs):
            gradient = self.softmax.from_flat(w, 10).gradient(x, y).flat()
            w = w - RATE * (gradient + self.mu * (w - start))
        return w

    def batches(self, device: int, round: int, epochs: int) -> Iterator[tuple[Any, Any]]:
        index = self.data.train(device)
        for order in islice(orders(0, device, round, len(index)), epochs):
            order = index[order]
            for start in range(0, len(order), BATCH):
                rows = order[start : start + BATCH]
                yield self.data.x[rows], self.data.y[rows]


def generator(device: int, round: int, purpose: str, *more: int) -> np.random.Generator:
    return np.random.default_rng([0, device, round, int.from_bytes(purpose.encode(), "big"), *more])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The folders of a smaller sweep on one data set."""
    folder = tmp_path_factory.mktemp("sweep")
    outcome = launch(["+experiment=reproduce/fedprox_synthetic", *FEW, f"hydra.sweep.dir={folder}"])
    assert outcome.failed == 0
    return sorted((path.parent for path in folder.rglob("summary.json")), key=lambda path: int(path.name))


def test_experiment_uses_the_four_data_sets() -> None:
    parser, params = OverridesParser.create(), OmegaConf.load(EXPERIMENT).hydra.sweeper.params
    choices: Any = parser.parse_override(f"data={params.data}").value()
    names = [synthetic(**{str(key): value for key, value in choice.items()}).name for choice in choices.list]
    kinds = ["synthetic_iid", "synthetic(0,0)", "synthetic(0.5,0.5)", "synthetic(1,1)"]
    assert names == [f"{kind} seed=0" for kind in kinds]


def test_only_fedprox_takes_the_mu_of_the_paper() -> None:
    chosen = {name: composed(["+experiment=reproduce/fedprox_synthetic", f"strategy={name}"]) for name in STRATEGIES}
    assert {name: config.strategy.get("mu") for name, config in chosen.items()} == {"fedavg": None, "fedprox": 1.0}
    own = composed(["+experiment=reproduce/fedprox_synthetic", "strategy=fedprox", "strategy.mu=0.3"])
    assert (own.strategy.mu, composed(["strategy=fedprox"]).strategy.mu) == (0.3, 0.01)


@pytest.mark.slow
def test_sweep(runs: list[Path]) -> None:
    """FedAvg and FedProx, with and without stragglers."""
    summaries = [RunFolder(run).summary() for run in runs]
    found = [tuple(s["settings"].get(key) for key in ("data", "fleet.stragglers", "strategy.mu")) for s in summaries]
    assert found == [("synthetic(1,1) seed=3", slow, mu) for slow in ("0.0", "0.9") for mu in (None, "1.0")]
    assert {(s["devices"], s["cohort"], s["unseen"], s["reported_round"]) for s in summaries} == {(5, 4, 0, 3)}


@pytest.mark.slow
def test_agrees_with_numpy(runs: list[Path], numpy_softmax: Any) -> None:
    for run in runs:
        config: Any = OmegaConf.load(run / ".hydra" / "config.yaml")
        data, mu = federated(config), config.strategy.get("mu", 0)
        initial = Runtime(TrainableModel.load(run / "initial.tflite")).initial.vector
        w = Rounds(config, data, numpy_softmax, mu, mu > 0).weights(initial.astype(np.float64))
        for row in RunFolder(run).devices():
            index = data.test(row["device"])
            x, y, model = data.x[index], data.y[index], numpy_softmax.from_flat(w, 10)
            assert row["loss"] == pytest.approx(model.losses(x, y).mean(), abs=1e-5), run
            assert row["accuracy"] == (model.logits(x).argmax(axis=1) == y).mean(), run
            assert row["examples"] + row["train_examples"] == len(index) + len(data.train(row["device"]))
