"""The clock of a run, and checks of the settings that are incompatible with it."""

from odt_sim.aggregators.mean import Mean
from odt_sim.errors import ConfigurationError, StrategyError
from odt_sim.fleet.conditions import Conditions
from odt_sim.settings import ASYNCHRONOUS, READ_BY, Schedule
from odt_sim.simulation.clock.clock import Clock
from odt_sim.simulation.clock.rounds import OortClock, SynchronousClock
from odt_sim.simulation.clock.servers import BufferedClock, MixingClock
from odt_sim.simulation.clock.timetable import Ids
from odt_sim.simulation.executors.job import Job
from odt_sim.strategies.base import Strategy

KINDS: dict[str, type[Clock]] = {
    "synchronous": SynchronousClock,
    "oort": OortClock,
    "fedbuff": BufferedClock,
    "fedasync": MixingClock,
}
"""The clock of each `fleet.schedule.kind`."""


def clock_of(job: Job, conditions: Conditions, participants: Ids) -> Clock:
    """Return the clock of a run with device profiles.

    Raises:
        ConfigurationError: Fewer devices than a round needs have enough memory.
    """
    return KINDS[job.fleet.schedule.kind](job, conditions, participants)


def check_clock(job: Job, conditions: Conditions | None, promises: bool) -> None:
    """Check that a run's settings are compatible with its clock, or with having none.

    Args:
        job: The run's job.
        conditions: The devices' conditions; None for a run without a clock.
        promises: Whether the aggregator promises privacy.

    Raises:
        ConfigurationError: A setting needs a clock, or has no meaning with one.
        StrategyError: The strategy chooses its cohorts, or cannot be asynchronous.
    """
    schedule, strategy = job.fleet.schedule, job.strategy
    if conditions is None:
        if schedule != Schedule():
            raise ConfigurationError("fleet.schedule: needs the times of fleet.profiles; set it: fleet.profiles=phones")
        return
    if type(strategy).cohort is not Strategy.cohort:
        raise StrategyError(
            f"strategy {strategy.name}: chooses its cohorts, but with fleet.profiles they are drawn from the "
            "available devices; leave fleet.profiles out, or choose another strategy"
        )
    if job.fleet.stragglers:
        raise ConfigurationError(
            f"fleet.stragglers: expected 0 with fleet.profiles, whose speeds determine which devices are late, found "
            f"{job.fleet.stragglers:g}; set fleet.schedule.deadline instead"
        )
    if promises:
        raise ConfigurationError(
            f"aggregator {job.aggregator.name}: guarantees privacy only for cohorts drawn uniformly from all "
            "devices, but fleet.profiles draws from the available ones; leave out one of the two"
        )
    if schedule.kind in ASYNCHRONOUS:
        _check_asynchronous(job)
    for name, most in (("min_reports", job.cohort), ("concurrency", job.participants), ("buffer", job.participants)):
        value = getattr(schedule, name)
        if schedule.kind in READ_BY[name] and value is not None and value > most:
            what = "fleet.cohort" if name == "min_reports" else "the number of seen devices"
            raise ConfigurationError(f"fleet.schedule.{name}: expected at most {what}, {most}, found {value}")


def _check_asynchronous(job: Job) -> None:
    kind, strategy, aggregator = job.fleet.schedule.kind, job.strategy, job.aggregator
    if strategy.alone:
        raise StrategyError(
            f"strategy {strategy.name}: has no server to update asynchronously (fleet.schedule={kind}); choose "
            "fleet.schedule=synchronous, in which all available devices train alone each round, or another strategy"
        )
    if not strategy.asynchronous:
        raise StrategyError(
            f"strategy {strategy.name}: cannot be asynchronous (fleet.schedule={kind}), since its server needs "
            "updates that all started from its current state; choose fleet.schedule=synchronous, or another strategy"
        )
    if type(aggregator) is not Mean:
        raise ConfigurationError(
            f"aggregator {aggregator.name}: combines the updates of a round, but fleet.schedule={kind} has no "
            "rounds; choose aggregator=mean"
        )
