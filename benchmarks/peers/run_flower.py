"""The workloads on Flower's simulation, with PyTorch and one Ray actor per CPU.

FEATURES=1 computes a frozen body's features only once per device and actor.
"""

import os
import time
from collections.abc import Iterable
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from peers import flower_client
from peers.torch_models import in_keras_layout, network, trained
from peers.workloads import COHORT, Problem

PROBLEM = Problem.chosen()


class TimedFedAvg(FedAvg):
    """FedAvg on the workload's cohorts, which records the ends of rounds."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.marks, self.steps = list[float](), 0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Assign a device of the round to each sampled node; nodes are stateless, so any node can train any device."""
        nodes = super().configure_train(server_round, arrays, config, grid)
        for message, device in zip(nodes, PROBLEM.cohorts[server_round - 1].tolist(), strict=True):
            record = RecordDict({"arrays": arrays, "config": ConfigRecord({"device": device})})
            to = message.metadata
            yield Message(content=record, message_type=to.message_type, dst_node_id=to.dst_node_id)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        received = list(replies)
        assert sum(not reply.has_error() for reply in received) == COHORT, received
        self.steps += sum(int(reply.content["metrics"]["steps"]) for reply in received)
        result = super().aggregate_train(server_round, received)
        self.marks.append(time.time())
        return result


server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    initial = trained(network(PROBLEM, flower_client.FEATURES))
    strategy = TimedFedAvg(
        fraction_train=COHORT / PROBLEM.devices,
        min_train_nodes=COHORT,
        fraction_evaluate=0.0,
        min_available_nodes=PROBLEM.devices,
    )
    arrays = ArrayRecord([value.detach().numpy() for value in initial])
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=PROBLEM.rounds)
    after = [torch.from_numpy(value.copy()) for value in result.arrays.to_numpy_ndarrays()]
    PROBLEM.report(strategy.marks, strategy.steps, in_keras_layout(PROBLEM, after))


if __name__ == "__main__":
    run_simulation(
        server_app=server,
        client_app=flower_client.app,
        num_supernodes=PROBLEM.devices,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"address": "local", "num_cpus": os.cpu_count()},
        },
    )
