"""The variables of a model, and their values before the check."""

from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from odt_sim.export.emit.signatures import Variable
from odt_sim.export.self_check.side import moved


class Snapshot:
    """The values of variables at one time; those that stay the same take no memory."""

    def __init__(self, variables: Iterable[Variable], weights: Iterable[Variable]) -> None:
        """Keep values.

        Args:
            variables: The variables.
            weights: Those of them that `restore` can move.
        """
        distinct = {id(variable): variable for variable in variables}
        self._values = [(variable, tf.convert_to_tensor(variable)) for variable in distinct.values()]
        self._weights = set(map(id, weights))

    def restore(self, random: np.random.Generator | None = None) -> None:
        """Set all variables to their values; `random` moves weights by one unit in the last place."""
        for variable, value in self._values:
            variable.assign(moved(value.numpy(), random) if random and id(variable) in self._weights else value)
