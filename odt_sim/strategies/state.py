"""Helpers of strategies: the server's step, the weights that a device receives, and the state that it keeps."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.device import Device
from odt_sim.model.tensors import Tensors, array_of, weights_of
from odt_sim.model.weights import Layout, Weights

NOTHING = Layout(())
"""Layout of the shared parameters if nothing travels."""


def trained_by_gradients(layout: Layout) -> Layout:
    """Return the layout of the parameters with a gradient: all except BatchNorm statistics and frozen parameters."""
    return layout.select(lambda p: p.role == "trainable")


def stepped(weights: Weights, change: Weights, server_learning_rate: float) -> Weights:
    """Return the server's weights after a step along the mean change."""
    return weights + scaled(change, server_learning_rate)


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


def scaled(change: Weights, server_learning_rate: float) -> Weights:
    """Return the server's step along the mean change.

    BatchNorm statistics always change by the mean itself, since a longer step could make a variance negative.
    """
    if server_learning_rate == 1:
        return change
    trained = change.select(trained_by_gradients(change.layout))
    return change.replace(server_learning_rate * trained)


def receive(device: Device, broadcast: Tensors) -> Weights:
    """Restore the broadcast weights and the device's own parameters; return all weights of the device."""
    recall(device)
    device.restore(weights_of(broadcast))
    return device.weights


def keep(device: Device, trained: Weights, shared: Layout) -> None:
    """Keep the parameters that do not travel on the device; frozen ones are already in its file."""
    own = device.model.moving
    if shared == own:
        return
    if shared.parameters:
        own = own.select(lambda p: p.name not in shared.slices)
    if own.size:
        device.state["own"] = trained.select(own)


def recall(device: Device) -> None:
    """Restore the parameters stored by `keep`, if any."""
    own = device.state.get("own")
    if isinstance(own, Weights):
        device.restore(own)


def keep_optimizer(device: Device) -> None:
    """Keep the optimizer's slots on the device."""
    for i, slot in enumerate(device.optimizer_state()):
        device.state[f"optimizer.{i}"] = slot


def recall_optimizer(device: Device) -> None:
    """Restore the slots stored by `keep_optimizer`, if any, except the random states of layers such as Dropout."""
    slots = device.optimizer_state()
    for i in range(len(slots)):
        kept = device.state.get(f"optimizer.{i}")
        if kept is not None and i not in device.model.random_states:
            slots[i] = array_of(kept)
    if slots:
        device.restore_optimizer_state(slots)
