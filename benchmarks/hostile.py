"""The cost of hostile devices, of robust aggregators, and of privacy: FedAvg on the digits.

20 devices train the digits' CNN in every round. Under an attack, 4 of them, drawn by the seed, multiply their updates
by a factor: -1 (sign flipped), 10 (scaled), -10 (both). The output is the weighted mean test accuracy over all devices,
in percent, after the last round, averaged over seeds. All runs of a seed have the same devices, splits and batches.
`norm_clipping` clips to twice the median norm of the first round's updates without an attack.

With `--private`, 300 users, 60 per round, train a softmax regression under user-level differential privacy without an
attack. Their updates are clipped to the median norm of the first round.

    python benchmarks/hostile.py [--rounds 80] [--seeds 3] [--private]
"""

import argparse
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from workload import shipped_model

from odt_sim import Device, Fleet, Simulation, Strategy, TrainableModel, TrainingPlan
from odt_sim.aggregators import Aggregator, DifferentialPrivacy, Krum, Mean, Median, NormClipping, TrimmedMean
from odt_sim.aggregators.norm_clipping import norm
from odt_sim.data import digits, dirichlet, federate, iid
from odt_sim.data.devices.federated import FederatedData
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.base import Tensors, Update

DEVICES, HOSTILE = 20, 4
PLAN, PRIVATE_PLAN = (TrainingPlan(epochs=1, learning_rate=rate) for rate in (0.1, 0.5))
PARTITIONS: Mapping[str, Any] = {"iid": iid, "dirichlet 0.3": partial(dirichlet, alpha=0.3)}
ATTACKS = {"no attack": 1.0, "x -1": -1.0, "x 10": 10.0, "x -10": -10.0}
USERS, COHORT = 300, 60
NOISE = (0.0, 1.0, 2.0, 4.0, 8.0)


class Attacked(FedAvg):
    """FedAvg with hostile devices that multiply their updates by a factor."""

    def __init__(self, hostile: Iterable[int], factor: float) -> None:
        self._hostile, self.factor = frozenset(hostile), factor

    def local(self, device: Device, broadcast: Tensors) -> Update:
        update = super().local(device, broadcast)
        if device.id not in self._hostile:
            return update
        tensors = {name: self.factor * tensor for name, tensor in update.tensors.items()}
        return Update(tensors, update.weight, update.losses)


def aggregators(bound: float) -> Sequence[Aggregator]:
    """Return the aggregators to compare, configured for `HOSTILE` devices and a norm bound."""
    share = HOSTILE / DEVICES
    return Mean(), Median(), TrimmedMean(share), Krum(share), Krum(share, DEVICES // 2), NormClipping(bound)


def median_norm(model: TrainableModel, data: FederatedData, plan: TrainingPlan, seed: int) -> float:
    """Return the median norm of the devices' updates in the first round."""
    strategy, lengths = FedAvg(), []
    for id in range(data.devices):
        rows = data.train(id)
        device = Device(model, (data.x[rows], data.y[rows]), seed=seed, id=id, round=1, plan=plan)
        lengths.append(norm(strategy.local(device, strategy.init(device.parameters()).broadcast).tensors))
    return float(np.median(lengths))


def ran(
    model: TrainableModel,
    data: FederatedData,
    strategy: Strategy,
    aggregator: Aggregator,
    rounds: int,
    seed: int,
    plan: TrainingPlan = PLAN,
    cohort: int | None = None,
) -> Mapping[str, Any]:
    """Run a simulation in a temporary folder and return its summary after the last round."""
    with tempfile.TemporaryDirectory() as folder:
        run = Simulation(
            model,
            data,
            strategy,
            rounds=rounds,
            directory=folder,
            fleet=Fleet(cohort=cohort, min_devices=0),  # devices that diverge are excluded, possibly all of them
            plan=plan,
            evaluate_every=rounds,
            seed=seed,
            aggregator=aggregator,
        )
        return run.run()


def accuracy(summary: Mapping[str, Any]) -> float:
    return float(100 * summary["metrics"]["accuracy"]["weighted_mean"])


def attacks(partition: Callable[..., Any], rounds: int, seeds: int) -> Table:
    """Return a table with a row per aggregator and a column per attack."""
    model = shipped_model("digits_cnn")
    found: dict[str, dict[str, list[float]]] = {}
    for seed in range(seeds):
        data = federate(digits(), partition, DEVICES, seed)
        hostile = np.random.default_rng([seed, *b"hostile"]).choice(DEVICES, HOSTILE, replace=False).tolist()
        for aggregator in aggregators(2 * median_norm(model, data, PLAN, seed)):
            selected = f" ({aggregator.selected} selected)" if isinstance(aggregator, Krum) else ""
            cells = found.setdefault(f"{aggregator.name}{selected}", {})
            for name, factor in ATTACKS.items():
                summary = ran(model, data, Attacked(hostile, factor), aggregator, rounds, seed)
                cells.setdefault(name, []).append(accuracy(summary))
    table = Table("aggregator", *ATTACKS)
    for label, cells in found.items():
        table.add_row(label, *(f"{np.mean(figures):.1f}" for figures in cells.values()))
    return table


def private(rounds: int, seeds: int) -> Table:
    """Return a table with a row for the mean, and a row per noise level."""
    model = shipped_model("softmax")
    table = Table("noise_multiplier", "epsilon", "delta", "accuracy")
    fleets = [federate(digits(), iid, USERS, seed) for seed in range(seeds)]
    bound = median_norm(model, fleets[0], PRIVATE_PLAN, 0)
    for aggregator in (Mean(), *(DifferentialPrivacy(bound, noise, delta=1e-4) for noise in NOISE)):
        summaries = [
            ran(model, data, FedAvg(), aggregator, rounds, seed, PRIVATE_PLAN, COHORT)
            for seed, data in enumerate(fleets)
        ]
        promised = summaries[0]["privacy"] or {"epsilon": np.inf, "delta": 0}
        noise = f"{aggregator.noise_multiplier:g}" if isinstance(aggregator, DifferentialPrivacy) else aggregator.name
        figures = (f"{promised[name]:.3g}" for name in ("epsilon", "delta"))
        table.add_row(noise, *figures, f"{np.mean([accuracy(summary) for summary in summaries]):.1f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what hostile devices cost under each aggregator.")
    parser.add_argument("--rounds", type=int, default=80)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--private", action="store_true", help="what differential privacy costs, without an attack")
    options = parser.parse_args()
    console = Console(width=120)
    if options.private:
        console.print(private(options.rounds, options.seeds))
        return
    for name, partition in PARTITIONS.items():
        console.print(f"{name}, {options.rounds} rounds, {options.seeds} seeds")
        console.print(attacks(partition, options.rounds, options.seeds))


if __name__ == "__main__":
    main()
