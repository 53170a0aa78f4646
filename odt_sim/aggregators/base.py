"""The contract of an aggregator, and the weighted mean as its default.

An aggregator has two places in a round: `limit` runs beside the device, on what it sends; `combine` runs on the
coordinator and makes the mean that `Strategy.aggregate` gets. So each works under every strategy that averages, and a
strategy knows of none.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.model.weights import Weights
from odt_sim.strategies.base import Tensors, Updates


class Aggregator:
    """The rule by which updates become one; as it stands, their mean, weighted by what devices say they weigh.

    Attributes:
        keeps_updates: Whether `combine` needs the single updates. The coordinator then holds those of a whole cohort; else
            each block adds its own up.
        unweighted: Whether all devices count alike in the sums, whatever they weigh.
    """

    keeps_updates: bool = False
    unweighted: bool = False

    @property
    def name(self) -> str:
        """The aggregator's name in records and reports: the module's of a shipped one, the class's of a user's own."""
        package, _, module = type(self).__module__.rpartition(".")
        return module if package == __package__ else type(self).__name__

    def limit(self, tensors: Tensors) -> Tensors:
        """Returns what is aggregated of a device's update: all values are finite, and must be after.

        Args:
            tensors: What the device sends, by name.
        """
        return tensors

    def combine(self, updates: Updates, cohort: int, random: np.random.Generator) -> Updates:
        """Returns the updates with the finite `mean` that the strategy gets; called where at least one device contributed.

        Args:
            updates: The mean of what was limited or, with `keeps_updates`, no mean, and what was limited in `each`, by
                ascending device id.
            cohort: The number of devices that the round was begun with.
            random: Of the run's seed and the round alone.
        """
        return updates

    def check(self, devices: int) -> None:
        """Checks, before a run and in every round, that the updates of so many devices can be combined.

        Raises:
            ConfigurationError: They are too few; any other error is told as a bug of the check.
        """

    def privacy(self, rounds: int, cohort: int, participants: int) -> Mapping[str, Any] | None:
        """Returns the privacy that a run of so many rounds gives its users, for the summary; None where it promises none.

        It is asked once, before the run. The mapping holds `epsilon`, 0 to infinity, and `delta`, 0 to 1, and whatever else
        JSON can hold.

        Args:
            rounds: How many.
            cohort: The devices of each round, drawn uniformly without replacement.
            participants: The devices that they are drawn from.
        """
        return None


def with_numbers(tensor: Weights | NDArray[Any], numbers: NDArray[Any]) -> Weights | NDArray[np.float32]:
    """Returns a tensor of the same kind and shape that holds these numbers, as float32."""
    converted = numbers.astype(np.float32)
    return Weights(tensor.layout, converted) if isinstance(tensor, Weights) else converted.reshape(tensor.shape)
