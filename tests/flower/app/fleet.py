"""The Flower app of `test_processes.py`: two devices; `task` is the strategy of the server.

`flower.FedAvg` is Flower's strategy with devices of odt_sim; any other task is a strategy of odt_sim.
"""

from pathlib import Path

import numpy as np
from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import odt_sim.flower
import odt_sim.strategies
from odt_sim import Strategy, TrainableModel, TrainingPlan
from odt_sim.data.devices.federated import FederatedData
from odt_sim.export.cache import exported
from odt_sim.testing import PERCEPTRON, random_data

ROUNDS = 5
OWN = {"plan": TrainingPlan(epochs=2), "seed": 1}
OWN_ROUNDS = {"rounds": 2, "evaluate_every": 2}


def parts() -> tuple[TrainableModel, FederatedData]:
    """Return the model and the data, equal in every process."""
    model = TrainableModel.load(exported(PERCEPTRON))
    return model, random_data(model, [9, 4])


def strategy_of(task: str) -> Strategy:
    """Return the strategy of the devices, which is federated averaging for strategies of Flower."""
    name = "FedAvg" if task.startswith("flower.") else task
    return getattr(odt_sim.strategies, name)()


def client_of(task: str) -> ClientApp:
    """Return the app of the devices."""
    return odt_sim.flower.client_app(*parts(), strategy_of(task), **OWN)


def server_of(task: str, folder: Path) -> ServerApp:
    """Return the app of the server, which writes its weights or its run to a folder."""
    model, data = parts()
    if not task.startswith("flower."):
        run = {**OWN_ROUNDS, **OWN, "directory": folder / task, "observers": []}
        return odt_sim.flower.server_app(model, data, strategy_of(task), **run)
    app = ServerApp()

    def main(grid: Grid, context: Context) -> None:
        arrays = odt_sim.flower.initial_arrays(model, strategy_of(task))
        result = FedAvg(fraction_evaluate=0).start(grid, arrays, num_rounds=ROUNDS)
        weights = odt_sim.flower.weights_of(model, result.arrays).vector
        np.savez(folder / f"{task}.npz", weights=weights)

    app.main()(main)
    return app


client = ClientApp()
server = ServerApp()


def _configured(category: str) -> None:
    """Serve messages by the app of the run's task."""

    def work(message, context):
        return client_of(str(context.run_config["task"]))(message, context)

    for decorator in (getattr(client, category)(), getattr(client, category)("odt_sim")):
        decorator(work)


for category in ("train", "evaluate", "query"):
    _configured(category)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Run the task of the run's configuration."""
    server_of(str(context.run_config["task"]), Path(str(context.run_config["folder"])))(grid, context)
