"""From what a round's devices did to what the strategy's `aggregate` gets."""

from dataclasses import replace

from odt_sim.device.random import generator_for
from odt_sim.errors import ConfigurationError, SimulationError
from odt_sim.simulation.job import Job, Trained
from odt_sim.simulation.round_in_flight import Begun
from odt_sim.simulation.run_checks import check_updates
from odt_sim.simulation.sums import check_finite, mean
from odt_sim.strategies.base import Updates


def aggregated(job: Job, round: int, trained: Trained, begun: Begun) -> Updates:
    """Has the aggregator combine a round's updates; the strategy gets single ones only where it asks for them.

    Raises:
        SimulationError: The aggregator failed, or too few devices contributed for it.
    """
    aggregator = job.effective_aggregator
    try:
        check_updates(job, len(trained.contributed))
    except ConfigurationError as error:
        raise SimulationError(f"round {round}: {error}; {begun.missing(trained)}") from error
    with job.aggregator_errors(f"in round {round}"):
        random = generator_for(job.seed, round, "aggregator")
        updates = aggregator.combine(mean(trained, job.participants), job.cohort, random)
        check_finite(updates.mean, "the combined update's")
    return updates if job.strategy.keeps_updates else replace(updates, each={})
