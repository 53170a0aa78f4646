"""Which privacy a run promises its users, as the aggregator says it before the first round."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from odt_sim.errors import ConfigurationError
from odt_sim.persistence.run_folder import document
from odt_sim.simulation.job import Job


def promised(job: Job, rounds: int) -> Mapping[str, Any] | None:
    """Returns what the aggregator says of the privacy of a run of so many rounds; None where it promises none.

    Raises:
        ConfigurationError: What the aggregator needs for it is missing.
        SimulationError: The aggregator failed, or says what it must not.
    """
    aggregator = job.effective_aggregator
    with job.aggregator_errors("in privacy", passes=ConfigurationError):
        found = aggregator.privacy(rounds, job.cohort, job.participants)
        if found is not None:
            _check(found)
        return found


def _check(found: Mapping[str, Any]) -> None:
    if not isinstance(found, Mapping):
        raise TypeError(f"it returned {type(found).__name__}, expected a mapping or None")
    for name, most in (("epsilon", math.inf), ("delta", 1.0)):
        value = found.get(name)
        if not isinstance(value, int | float | np.floating) or not 0 <= value <= most:
            raise ValueError(f"{name!r} is {value!r}, expected a number from 0 to {most:g}")
    document(found)  # what the summary cannot hold is told now, not after all rounds
