"""Weights in the form that Flower's strategies send and average: one array per parameter."""

import numpy as np
from flwr.app import Array, ArrayRecord

from odt_sim.errors import StrategyError
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Layout, Weights
from odt_sim.simulation.start import initial_weights
from odt_sim.strategies.base import Strategy


def initial_arrays(model: TrainableModel, strategy: Strategy) -> ArrayRecord:
    """Return the initial arrays for a Flower strategy: the exported weights that travel, by name.

    Args:
        model: The model.
        strategy: The strategy of the devices.

    Raises:
        StrategyError: The strategy's server sends more than weights, or nothing.
    """
    return packed(shared_weights(model, strategy))


def shared_weights(model: TrainableModel, strategy: Strategy) -> Weights:
    """Return the exported weights that travel.

    Raises:
        StrategyError: The strategy's server sends more than weights, or nothing.
    """
    broadcast = strategy.init(initial_weights(model)).broadcast
    weights = broadcast.get("weights")
    if set(broadcast) != {"weights"} or not isinstance(weights, Weights) or not weights.layout.size:
        raise StrategyError(
            f"strategy {strategy.name}: its server sends {', '.join(sorted(broadcast)) or 'nothing'}, but Flower "
            "strategies only send weights; run it with odt_sim.flower.server_app"
        )
    return weights


def packed(weights: Weights) -> ArrayRecord:
    """Return weights as a record with one array per parameter."""
    names = weights.layout.names
    return ArrayRecord({name: Array(tensor) for name, tensor in zip(names, weights.tensors(), strict=True)})


def weights_of(model: TrainableModel, arrays: ArrayRecord) -> Weights:
    """Return the weights in a record, such as a strategy's `result.arrays`, in the model's order as float32.

    Args:
        model: The model.
        arrays: One array per parameter that travels, by name.

    Raises:
        ModelError: A shape does not fit.
        StrategyError: The record contains a name that is not a parameter of the model.
    """
    unknown = sorted(set(arrays) - set(model.layout.names))
    if unknown:
        raise StrategyError(
            f"flower: the model {model.name} has no parameter {unknown[0]!r}; start the strategy with "
            "odt_sim.flower.initial_arrays(model, strategy)"
        )
    layout = model.layout.select(lambda parameter: parameter.name in arrays)
    return Weights.from_tensors(layout, [arrays[name].numpy().astype(np.float32) for name in layout.names])


def layout_of(model: TrainableModel, names: list[str]) -> Layout:
    """Return the layout of named parameters of a model, in the order given."""
    by_name = {parameter.name: parameter for parameter in model.parameters}
    return Layout(tuple(by_name[name] for name in names))
