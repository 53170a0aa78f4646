"""The Flower client, in a separate module so that an actor keeps its model and examples between messages.

Flower's quickstart creates both for each message; an expert would keep them.
"""

import os
from functools import cache
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from peers.torch_models import network, tensors, trained
from peers.workloads import Problem

FEATURES = os.environ.get("FEATURES") == "1"
app = ClientApp()


@cache
def problem() -> Problem:
    return Problem.chosen()


@cache
def model() -> nn.Module:
    torch.set_num_threads(1)  # there is an actor per core
    return network(problem(), FEATURES)


@cache
def examples(device: int) -> tuple[Tensor, Tensor]:
    return tensors(problem(), device, FEATURES)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the device named in the message on its examples."""
    content: Any = message.content
    workload, parameters, steps = problem().workload, trained(model()), 0
    with torch.no_grad():
        for parameter, value in zip(parameters, content["arrays"].to_numpy_ndarrays(), strict=True):
            parameter.copy_(torch.from_numpy(np.array(value)))
    x, y = examples(content["config"]["device"])
    optimizer = torch.optim.SGD(parameters, lr=workload.learning_rate)
    for _ in range(workload.epochs):
        for rows in torch.randperm(len(x)).split(workload.batch):
            optimizer.zero_grad()
            cross_entropy(model()(x[rows]), y[rows]).backward()
            optimizer.step()
            steps += 1
    arrays = ArrayRecord([parameter.detach().numpy() for parameter in parameters])
    metrics = MetricRecord({"num-examples": len(x), "steps": steps})
    return Message(content=RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
