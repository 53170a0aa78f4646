"""Global models of clusters of devices, shared by the strategies that train one model per cluster."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.device import Device
from odt_sim.model.tensors import Tensors, weights_of
from odt_sim.model.weights import Weights
from odt_sim.strategies.state import receive, stepped


def model_name(cluster: int) -> str:
    """Return the name of a cluster's model in the broadcast."""
    return f"weights.{cluster}"


def best_cluster(device: Device, models: Tensors) -> int:
    """Return the cluster whose model has the smallest loss on the training examples; diverged models rank last.

    Args:
        device: The device; with more than one model, its weights are those of the last model afterwards.
        models: Models by `model_name`.
    """
    clusters = sorted(int(name.rpartition(".")[2]) for name in models)
    if len(clusters) == 1:
        return clusters[0]
    losses = []
    for cluster in clusters:
        device.restore(weights_of(models, model_name(cluster)))
        losses.append(device.loss("train"))
    return clusters[int(np.argmin(np.nan_to_num(losses, nan=np.inf)))]  # argmin treats NaN as the smallest


def of_cluster(device: Device, models: Tensors) -> Weights:
    """Return the model of the device's cluster, and record the cluster's number.

    Args:
        device: The device.
        models: Models by `model_name`.
    """
    cluster = best_cluster(device, models)
    device.records["cluster"] = cluster
    return receive(device, {"weights": models[model_name(cluster)]})


def moved(
    model: Weights, changes: Sequence[Weights], weights: NDArray[np.float64], server_learning_rate: float = 1.0
) -> Weights:
    """Return a model after the server's step along the weighted mean of changes; without changes, return it unchanged.

    Args:
        model: The model.
        changes: Changes of all its parameters.
        weights: `[changes]`, the weight of each change, above 0.
        server_learning_rate: Factor of the mean.
    """
    mean = np.zeros(model.layout.size)
    for share, change in zip(weights / weights.sum(), changes, strict=True):
        mean += share * change.vector
    return stepped(model, Weights(model.layout, mean.astype(np.float32)), server_learning_rate)
