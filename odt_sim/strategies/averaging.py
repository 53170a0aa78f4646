"""Settings of strategies that average weights: how devices are weighted, and the size of the server's step."""

from typing import Literal, TypedDict, get_args

from odt_sim._support.checks import checked
from odt_sim.errors import ConfigurationError
from odt_sim.model.weights import Weights
from odt_sim.strategies.state import trained_by_gradients

Weighting = Literal["by_examples", "uniform"]


class Averaging(TypedDict, total=False):
    """Settings by name; a strategy's class attributes are the defaults.

    Attributes:
        server_learning_rate: Factor of the mean change on the server, above 0; 1 replaces the weights by the mean.
        weighting: Weights of devices in the mean: `by_examples`, the number of training examples, or `uniform`.
    """

    server_learning_rate: float
    weighting: Weighting


def checked_averaging(owner: str, given: Averaging) -> Averaging:
    """Check settings against their ranges and return them.

    Args:
        owner: Name of the strategy's class.
        given: The settings that differ from the defaults.

    Raises:
        ConfigurationError: A value is out of its range.
        TypeError: A setting is unknown.
    """
    unknown = [name for name in given if name not in Averaging.__annotations__]
    if unknown:
        raise TypeError(f"{owner}() got an unexpected keyword argument {unknown[0]!r}")
    if given.get("weighting", "uniform") not in get_args(Weighting):
        expected = " or ".join(get_args(Weighting))
        raise ConfigurationError(f"strategy.weighting: expected {expected}, found {given['weighting']!r}")
    if "server_learning_rate" in given:
        rate = checked("server_learning_rate", given["server_learning_rate"], 0, above=True)
        return {**given, "server_learning_rate": rate}
    return given


def stepped(weights: Weights, change: Weights, server_learning_rate: float) -> Weights:
    """Return the server's weights after a step along the mean change."""
    return weights + scaled(change, server_learning_rate)


def scaled(change: Weights, server_learning_rate: float) -> Weights:
    """Return the server's step along the mean change.

    BatchNorm statistics always change by the mean itself, since a longer step could make a variance negative.
    """
    if server_learning_rate == 1:
        return change
    trained = change.select(trained_by_gradients(change.layout))
    return change.replace(server_learning_rate * trained)
