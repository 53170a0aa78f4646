"""The contract of an aggregator, with the weighted mean as the default.

An aggregator has two methods in a round: `limit` runs on the worker, on each update; `combine` runs on the coordinator
and computes the mean for `Strategy.aggregate`. An aggregator therefore works under every strategy that averages.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, overload

import numpy as np
from numpy.typing import NDArray

from odt_sim._support.checks import warn_of_misspelt
from odt_sim._support.user_code import name_of, repr_of
from odt_sim.hyperparameters import Configured
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import Tensors, Updates


class Aggregator(Configured):
    """A rule that combines updates; by default their mean, weighted by the updates' weights.

    Attributes:
        keeps_updates: Whether `combine` needs the single updates. The coordinator then keeps those of a whole cohort in
            memory; otherwise each block sums up its own.
        unweighted: Whether all devices have equal weights in the sums.
        same_tensors: Whether all devices of a round must send tensors with the same names. Otherwise, a tensor counts
            as 0 for the devices that did not send it, and its presence shows `combine` that a device did.
    """

    _group = "aggregator"
    keeps_updates: ClassVar[bool] = False
    unweighted: ClassVar[bool] = False
    same_tensors: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        """Check that no member is misspelt."""
        super().__init_subclass__(**options)
        warn_of_misspelt(cls, Aggregator, cls.hyperparameters)

    def __repr__(self) -> str:
        """Return the class with its settings, in one line."""
        return repr_of(self)

    @property
    def name(self) -> str:
        """The name in records and reports: the module's for a shipped aggregator, the class's for any other."""
        return name_of(self, __package__)

    def limit(self, tensors: Tensors) -> Tensors:
        """Return the part of a device's update to aggregate; all values are finite, and must remain so.

        Args:
            tensors: The device's tensors by name.
        """
        return tensors

    def combine(self, updates: Updates, cohort: int, random: np.random.Generator) -> Updates:
        """Return the updates with the finite `mean` for the strategy; called only if at least one device contributed.

        Args:
            updates: The mean of the limited updates or, with `keeps_updates`, the limited updates in `each` by ascending
                device id, without a mean.
            cohort: Number of devices with which the round started.
            random: Generator seeded by the run's seed and the round.
        """
        return updates

    def check(self, devices: int) -> None:
        """Check, before a run and in every round, that there are enough updates to combine.

        Raises:
            ConfigurationError: There are too few updates. Other errors are reported as bugs of the check.
        """

    def privacy(self, rounds: int, cohort: int, participants: int) -> Mapping[str, Any] | None:
        """Return the privacy guarantee of a run for the summary; None for no guarantee.

        Called once, before the run. The mapping contains `epsilon`, 0 to infinity, `delta`, 0 to 1, and any other JSON
        values.

        Args:
            rounds: Number of rounds.
            cohort: Devices of each round, drawn uniformly without replacement.
            participants: Devices that cohorts are drawn from.
        """
        return None


@overload
def with_numbers(tensor: Weights, numbers: NDArray[Any]) -> Weights: ...


@overload
def with_numbers(tensor: NDArray[Any], numbers: NDArray[Any]) -> NDArray[np.float32]: ...


@overload
def with_numbers(tensor: Weights | NDArray[Any], numbers: NDArray[Any]) -> Weights | NDArray[np.float32]: ...


def with_numbers(tensor: Weights | NDArray[Any], numbers: NDArray[Any]) -> Weights | NDArray[np.float32]:
    """Return a tensor of the same kind and shape with new values, as float32."""
    converted = np.array(numbers, np.float32)
    return Weights(tensor.layout, converted) if isinstance(tensor, Weights) else converted.reshape(tensor.shape)
