"""Some rounds of the pFedMe Synthetic experiment equal plain numpy on the same splits."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf
from orders import orders

from odt_sim import TrainableModel
from odt_sim.cli.commands.run import launch
from odt_sim.cli.hydra.build import federated
from odt_sim.data.devices.federated import FederatedData
from odt_sim.device.runtime import Runtime
from odt_sim.persistence.run_folder import RunFolder
from odt_sim.simulation.run.cohort import choose_cohort

ROUNDS, USERS, COHORT, STEPS, BATCH = 2, 4, 3, 15, 20
FEW = [f"run.rounds={ROUNDS}", f"data.users={USERS}", f"fleet.cohort={COHORT}", f"train.steps={STEPS}"]
LAMBDA, OUTER, BETA, INNER, ADAPTATION = 20.0, 0.03, 2.0, 5, 0.05
OF_PFEDME = ["strategy.regularization=20", "strategy.outer_learning_rate=0.03", "strategy.server_learning_rate=2"]
RUNS: dict[str, tuple[float, list[str]]] = {  # the learning rate, and additional overrides
    "fedavg": (0.05, []),
    "perfedavg": (0.02, ["strategy.adaptation_rate=0.05", "strategy.weighting=by_examples"]),
    "pfedme": (0.02, [*OF_PFEDME, "strategy.weighting=by_examples"]),
}


@dataclass
class Twin:
    """The runs in plain numpy; weights are flat vectors `[610]`."""

    data: FederatedData
    softmax: Any
    rate: float

    def gradient(self, w: Any, x: Any, y: Any) -> Any:
        return self.softmax.from_flat(w, 10).gradient(x, y).flat()

    def batches(self, device: int, round: int, purpose: str = "batches") -> Iterator[tuple[Any, Any]]:
        """Yield the examples of each step of a round."""
        index, left = self.data.train(device), STEPS
        epochs = orders(0, device, round, len(index), purpose)
        while left:
            order = index[next(epochs)]
            starts = range(0, len(order), BATCH)[:left]
            for start in starts:
                rows = order[start : start + BATCH]
                yield self.data.x[rows], self.data.y[rows]
            left -= len(starts)

    def fedavg(self, w: Any, device: int, round: int) -> tuple[Any, Any]:
        for x, y in self.batches(device, round):
            w = w - self.rate * self.gradient(w, x, y)
        return w, None

    def perfedavg(self, w: Any, device: int, round: int) -> tuple[Any, Any]:
        for one, other in zip(self.batches(device, round), self.batches(device, round, "second"), strict=True):
            w = w - self.rate * self.gradient(w - ADAPTATION * self.gradient(w, *one), *other)
        return w, None

    def pfedme(self, w: Any, device: int, round: int) -> tuple[Any, Any]:
        own = w
        for x, y in self.batches(device, round):
            for _ in range(INNER):
                own = own - self.rate * (self.gradient(own, x, y) + LAMBDA * (own - w))
            w = w - OUTER * LAMBDA * (w - own)
        return w, own

    def deployed(self, strategy: str, w: Any) -> dict[int, Any]:
        """Return the weights of each user of the last cohort after all rounds."""
        for round in range(1, ROUNDS + 1):
            cohort = choose_cohort(np.arange(USERS), COHORT, 0, round).tolist()
            models, own = zip(*(getattr(self, strategy)(w, device, round) for device in cohort), strict=True)
            step = BETA if strategy == "pfedme" else 1.0
            w = (1 - step) * w + step * np.average(models, axis=0, weights=self.data.train_sizes[cohort])
        if strategy == "pfedme":
            return dict(zip(cohort, own, strict=True))
        if strategy == "fedavg":
            return dict.fromkeys(cohort, w)
        indices = {device: self.data.train(device) for device in cohort}
        return {id: w - ADAPTATION * self.gradient(w, self.data.x[i], self.data.y[i]) for id, i in indices.items()}


@pytest.mark.parametrize(
    "strategy", [pytest.param(name, marks=[] if name == "pfedme" else pytest.mark.slow) for name in RUNS]
)
def test_agrees_with_numpy(strategy: str, tmp_path: Path, numpy_softmax: Any) -> None:
    rate, settings = RUNS[strategy]
    chosen = [f"strategy={strategy}", f"train.learning_rate={rate}", *settings]
    run = f"hydra.run.dir={tmp_path}"
    assert launch(["+experiment=reproduce/pfedme_synthetic", *chosen, *FEW, "run.evaluate_every=2", run]).failed == 0
    data = federated(OmegaConf.load(tmp_path / ".hydra" / "config.yaml"))
    initial = Runtime(TrainableModel.load(tmp_path / "initial.tflite")).initial.vector
    models = Twin(data, numpy_softmax, rate).deployed(strategy, initial.astype(np.float64))
    rows = {row["device"]: row for row in RunFolder(tmp_path).devices()}
    assert RunFolder(tmp_path).summary()["reported_round"] == ROUNDS
    for device, w in models.items():
        index, model = data.test(device), numpy_softmax.from_flat(w, 10)
        x, y = data.x[index], data.y[index]
        assert rows[device]["loss"] == pytest.approx(model.losses(x, y).mean(), abs=1e-5)
        assert rows[device]["accuracy"] == (model.logits(x).argmax(axis=1) == y).mean()
