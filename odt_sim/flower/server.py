"""Flower `ServerApp` for a strategy of odt_sim."""

from collections.abc import Sequence
from os import PathLike
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from odt_sim.data.federated import FederatedData
from odt_sim.errors import ConfigurationError
from odt_sim.flower.backend import FlowerBackend
from odt_sim.model.trainable import TrainableModel
from odt_sim.observers.base import Observer
from odt_sim.simulation.coordinator import Simulation
from odt_sim.strategies.base import Strategy


def server_app(
    model: TrainableModel,
    data: FederatedData,
    strategy: Strategy,
    *,
    rounds: int,
    directory: str | PathLike[str],
    observers: Sequence[Observer] | None = None,
    **settings: Any,
) -> ServerApp:
    """Return an app that runs a strategy over nodes of `client_app`, one per device.

    The run's folder contains the same records and, bit for bit, the same model as a run of `Simulation`. Devices'
    states stay on their nodes and are lost at the end of Flower's run, so the run cannot be resumed.

    Args:
        model: The model that all devices train.
        data: The devices' examples. The server only uses their numbers; the nodes train on their own copies.
        strategy: The personalization algorithm.
        rounds: The number of rounds, at least 1.
        directory: The run's folder.
        observers: The observers of the run, as in `Simulation.run`.
        **settings: Further arguments of `Simulation`: `fleet`, `plan`, `seed`, `aggregator`, `attack`, `evaluate_every`,
            `target`. The first five must equal those of `client_app`.

    Raises:
        ConfigurationError: `resume` is set.
    """
    if settings.pop("resume", False):
        raise ConfigurationError(
            "flower: device states are lost when the Flower run ends, so it cannot be resumed; start a new run"
        )

    def main(grid: Grid, context: Context) -> None:
        backend = FlowerBackend(grid)
        run = Simulation(model, data, strategy, rounds=rounds, directory=directory, backend=backend, **settings)
        run.run(observers=observers)

    app = ServerApp()
    app.main()(main)
    return app
