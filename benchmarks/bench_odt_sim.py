"""The odt_sim side of the peers' workload, in the form of the peers' own scripts; run by `peers.py`.

BACKEND=ray (one actor a core) | serial. MODEL is the `.tflite` file of the peers' model, exported beforehand. A round ends
with its commit on disk. odt_sim evaluates after the last round, so the run has one round more than is measured.
"""

import os
import tempfile
import time

from bench_common import BATCH, COHORT, LR, N_CLIENTS, ROUNDS, Sampler, client_data, phash, report

sampler = Sampler()
sampler.start()

import numpy as np  # noqa: E402 (what odt_sim imports is part of what is measured)
from workload import fleet_of  # noqa: E402

from odt_sim import Fleet, Simulation, TrainableModel, TrainingPlan, Weights  # noqa: E402
from odt_sim.observers.base import Observer  # noqa: E402
from odt_sim.persistence.records import RoundRecord  # noqa: E402
from odt_sim.simulation.backend import Backend  # noqa: E402
from odt_sim.simulation.serial import SerialBackend  # noqa: E402
from odt_sim.strategies.base import ServerState, Updates  # noqa: E402
from odt_sim.strategies.fedavg import FedAvg  # noqa: E402

BACKEND = os.environ.get("BACKEND", "ray")
NAME = f"odt_sim/{BACKEND}"
MARKS: list[float] = []


class Kept(FedAvg):
    """FedAvg that stores the last global weights, for their hash."""

    weights: Weights

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        after = super().aggregate(state, updates)
        self.weights = after.weights
        return after


def backend() -> Backend:
    if BACKEND == "serial":
        return SerialBackend()
    from odt_sim.simulation.ray import RayBackend

    return RayBackend()


def main() -> None:
    model = TrainableModel.load(os.environ["MODEL"])
    assert model.batch_size == BATCH
    runner = backend()
    runner.start()
    x, y = (np.empty((N_CLIENTS, *part.shape), part.dtype) for part in client_data(0))
    for client in range(N_CLIENTS):
        x[client], y[client] = client_data(client)
    data = fleet_of(x.reshape(-1, *x.shape[2:]), y.reshape(-1), N_CLIENTS)
    strategy = Kept()

    class Marks(Observer):
        def on_round(self, record: RoundRecord) -> None:
            MARKS.append(time.time())
            if len(MARKS) == ROUNDS:
                report(NAME, MARKS, sampler, {"hash": phash(strategy.weights.tensors())})

    with tempfile.TemporaryDirectory() as folder:
        Simulation(
            model,
            data,
            strategy,
            rounds=ROUNDS + 1,
            directory=folder,
            fleet=Fleet(COHORT),
            plan=TrainingPlan(1, LR),
            evaluate_every=ROUNDS + 1,
            backend=runner,
        ).run(observers=[Marks()])


if __name__ == "__main__":
    main()
