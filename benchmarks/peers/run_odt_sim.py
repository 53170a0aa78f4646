"""The workloads on odt_sim; BACKEND is ray (an actor per core), processes, serial or auto, MODEL is the `.tflite` file.

At the end of the last measured round, all commits are on disk. odt_sim evaluates after the last round, so the run has
one more round than is measured.
"""

import os
import tempfile
import time

import numpy as np
from workload import fleet_from

from odt_sim import Fleet, Simulation, TrainableModel, TrainingPlan, Weights
from odt_sim.observers.base import Observer
from odt_sim.persistence.records import RoundRecord
from odt_sim.simulation.executors.auto import AutoBackend
from odt_sim.simulation.executors.executor import Executor
from odt_sim.simulation.executors.processes import ProcessesBackend
from odt_sim.simulation.executors.serial import SerialBackend
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.base import ServerState, Strategy, Updates
from odt_sim.strategies.shared_parts.head_only import HeadOnly
from peers.workloads import COHORT, Problem


def keeping(strategy: type[Strategy], kept: list[Weights]) -> Strategy:
    """Return a strategy that stores the global weights of the latest round in `kept`, as the only element."""

    class Kept(strategy):  # type: ignore[misc, valid-type]
        def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
            after = super().aggregate(state, updates)
            kept[:] = [after.weights]
            return after

    return Kept()


def chosen_backend() -> Executor:
    if os.environ["BACKEND"] == "serial":
        return SerialBackend()
    if os.environ["BACKEND"] == "processes":
        return ProcessesBackend()
    if os.environ["BACKEND"] == "auto":
        return AutoBackend()
    from odt_sim.simulation.executors.ray import RayBackend

    return RayBackend()


class Marks(Observer):
    """An observer that records the ends of rounds, and reports after the last measured round."""

    waits = True

    def __init__(self, problem: Problem, kept: list[Weights]) -> None:
        self._problem, self._kept = problem, kept
        self._seconds, self._steps = list[float](), 0

    def on_round(self, record: RoundRecord) -> None:
        self._seconds.append(record.seconds)
        self._steps += record.train_calls or 0
        if len(self._seconds) == self._problem.rounds:
            marks = [time.time() - sum(self._seconds[rounds:]) for rounds in range(1, self._problem.rounds + 1)]
            trained = [p.name for p in self._kept[0].layout.parameters if p.role == "trainable"]
            self._problem.report(marks, self._steps, [np.array(self._kept[0][name]) for name in trained])


def main() -> None:
    problem, kept = Problem.chosen(), list[Weights]()
    model = TrainableModel.load(os.environ["MODEL"])
    assert model.batch_size == problem.workload.batch
    backend = chosen_backend()
    backend.start()
    with tempfile.TemporaryDirectory() as folder:
        Simulation(
            model,
            fleet_from(problem.x, problem.y, problem.starts, int(problem.y.max()) + 1),
            keeping(HeadOnly if problem.name == "transfer" else FedAvg, kept),
            rounds=problem.rounds + 1,
            directory=folder,
            fleet=Fleet(COHORT),
            plan=TrainingPlan(problem.workload.epochs, problem.workload.learning_rate),
            evaluate_every=problem.rounds + 1,
            backend=backend,
        ).run(observers=[Marks(problem, kept)])


if __name__ == "__main__":
    main()
