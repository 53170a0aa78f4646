"""The rounds of a run: their cohorts, the work of their blocks, and what the server makes of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from odt_sim.device.random import generator_for
from odt_sim.errors import ConfigurationError, SimulationError
from odt_sim.metrics.fleet import evaluation_columns
from odt_sim.model.weights import Weights
from odt_sim.persistence.commit import Commit
from odt_sim.persistence.records import RoundRecord
from odt_sim.persistence.versions import Versions
from odt_sim.simulation.backend import Backend
from odt_sim.simulation.checks import check_updates
from odt_sim.simulation.cohort import (
    blocks,
    choose_cohort,
    choose_evaluated,
    choose_stragglers,
    choose_unseen,
    holds,
)
from odt_sim.simulation.evaluation import Row, not_evaluated
from odt_sim.simulation.exclusion import advice, failures_after, listed, quarantined
from odt_sim.simulation.job import Job, Task, Trained
from odt_sim.simulation.sums import check_finite, check_tensors, mean
from odt_sim.strategies.base import ServerState, Tensors, Updates, array_of, read_only


@dataclass(frozen=True)
class RoundInFlight:
    """A round that workers have begun.

    Attributes:
        round: Its number.
        invited: The ids of the devices of its cohort that are not quarantined.
        quarantined: The number of devices of its cohort that are.
        stragglers: The number of invited devices that are too slow for all of their work.
        dropped: The number of stragglers that the round does without.
        parts: The results of its blocks, as they come.
    """

    round: int
    invited: list[int]
    quarantined: int
    stragglers: int
    dropped: int
    parts: Iterator[Trained]

    def missing(self, trained: Trained) -> str:
        """Return which devices of the cohort did not contribute, why, and what to do."""
        excluded = trained.excluded
        counts = {
            f"left out {len(excluded)} ({listed(excluded)})": len(excluded),
            f"{self.dropped} were stragglers (fleet.stragglers)": self.dropped,
            f"{self.quarantined} are quarantined (fleet.quarantine_after)": self.quarantined,
        }
        missing = ", ".join(text for text, count in counts.items() if count)
        return f"{missing}; {advice(excluded) or 'ask for fewer, or correct why they fail'}"


class Rounds:
    """Begins and ends the rounds of a run, and begins evaluations."""

    def __init__(self, job: Job, backend: Backend, rounds: int) -> None:
        """Draw the devices that never train and those that are evaluated."""
        self._job, self._backend, self._rounds = job, backend, rounds
        fleet, devices = job.fleet, job.data.devices
        self._unseen = choose_unseen(devices, fleet.unseen, job.seed)
        seen = np.delete(np.arange(devices), self._unseen)
        self._participants = np.arange(devices) if job.strategy.alone else seen
        self._evaluated: list[int] = choose_evaluated(seen, self._unseen, fleet.evaluated, job.seed).tolist()

    def initial(self, weights: Weights) -> Commit:
        """Return the state before the first round, given a copy of the model's weights."""
        with self._job.strategy_errors("in init"):
            return Commit(0, _checked(self._job.strategy.init(weights)), Versions(), {})

    def begin(self, commit: Commit) -> RoundInFlight | None:
        """Begin the round after a commit, which need not be on disk yet; None after the last round."""
        round = commit.round + 1
        if round > self._rounds:
            return None
        partial, quarantine = self._job.strategy.partial_work, self._quarantined(commit)
        cohort = self._cohort(round)
        slow = self._stragglers(cohort, round)
        # Cut the blocks before quarantine: a sum has the same bits whether a device fails in it or is quarantined.
        cut = blocks([id for id in cohort if partial or id not in slow])
        active = [tuple(id for id in block if id not in quarantine) for block in cut]
        tasks = [
            Task("train", round, block, commit.versions.of(block), slow.intersection(block))
            for block in active
            if block
        ]
        parts = self._backend.train(tasks, commit.state.broadcast)
        invited = [id for id in cohort if id not in quarantine]
        stragglers = len(slow - quarantine)
        return RoundInFlight(
            round, invited, len(cohort) - len(invited), stragglers, 0 if partial else stragglers, parts
        )

    def end(self, commit: Commit, flight: RoundInFlight, trained: Trained) -> Commit:
        """Return the state after a round, given the state before it and the sum of its blocks.

        Raises:
            SimulationError: Too few devices contributed, or the strategy or the aggregator failed.
        """
        job, round = self._job, flight.round
        if len(trained.contributed) < job.fleet.min_devices:
            raise SimulationError(
                f"round {round}: {len(trained.contributed)} devices contributed, fleet.min_devices is "
                f"{job.fleet.min_devices}; {flight.missing(trained)}"
            )
        versions = commit.versions.after(round, trained.stateful)
        failures = failures_after(commit.failures, trained.contributed, trained.excluded)
        if not trained.contributed:
            return Commit(round, commit.state, versions, failures)
        updates = self._combined(flight, trained)
        with job.strategy_errors(f"in aggregate in round {round}"):
            before = ServerState(read_only(commit.state.broadcast), read_only(commit.state.private))
            return Commit(round, _checked(job.strategy.aggregate(before, updates)), versions, failures)

    def evaluate(self, kind: Literal["evaluate", "final"], commit: Commit) -> Iterator[Row]:
        """Begin to evaluate devices after a round; return their rows as they come."""
        tasks = [Task(kind, commit.round, block, commit.versions.of(block)) for block in blocks(self._evaluated)]
        results = self._backend.evaluate(tasks, commit.state.broadcast)
        return ({"seen": not holds(self._unseen, row["device"]), **row} for rows in results for row in rows)

    def record(
        self,
        before: Commit,
        after: Commit,
        flight: RoundInFlight,
        trained: Trained,
        rows: Sequence[Row],
        seconds: float,
    ) -> RoundRecord:
        """Return the record of a round; `rows` is empty if no evaluation was due."""
        return RoundRecord(
            round=flight.round,
            strategy=self._job.strategy.name,
            devices=len(trained.contributed),
            excluded=len(trained.excluded),
            excluded_devices=list(trained.excluded),
            excluded_reasons=trained.excluded,
            quarantined=flight.quarantined,
            newly_quarantined=sorted(self._quarantined(after) - self._quarantined(before)),
            stragglers=flight.stragglers,
            train_loss=trained.loss_sum / trained.loss_weight if trained.loss_weight else None,
            bytes_down=self._bytes_down(before.state.broadcast, flight.invited),
            bytes_up=trained.bytes_up,
            train_calls=trained.train_calls,
            infer_calls=trained.infer_calls,
            seconds=seconds,
            figures=evaluation_columns(rows, self._job.metrics),
            not_evaluated=not_evaluated(rows),
        )

    def _cohort(self, round: int) -> list[int]:
        size = None if self._job.strategy.alone else self._job.fleet.cohort
        return [int(id) for id in choose_cohort(self._participants, size, self._job.seed, round)]

    def _stragglers(self, cohort: Sequence[int], round: int) -> set[int]:
        """Return the devices that are too slow for the round; devices that learn alone have no deadline."""
        fraction = 0.0 if self._job.strategy.alone else self._job.fleet.stragglers
        return choose_stragglers(cohort, fraction, self._job.seed, round) if fraction else set()

    def _quarantined(self, commit: Commit) -> set[int]:
        return quarantined(commit.failures, self._job.fleet.quarantine_after)

    def _combined(self, flight: RoundInFlight, trained: Trained) -> Updates:
        """Return what the aggregator makes of a round's updates; single ones only if the strategy asks for them."""
        job, round = self._job, flight.round
        try:
            check_updates(job, len(trained.contributed))
        except ConfigurationError as error:
            raise SimulationError(f"round {round}: {error}; {flight.missing(trained)}") from error
        with job.aggregator_errors(f"in round {round}"):
            random = generator_for(job.seed, round, "aggregator")
            updates = job.effective_aggregator.combine(mean(trained, job.participants), job.cohort, random)
            check_finite(updates.mean, "the combined update's")
        return updates if job.strategy.keeps_updates else replace(updates, each={})

    def _bytes_down(self, broadcast: Tensors, cohort: Sequence[int]) -> int:
        with self._job.strategy_errors("in message"):
            messages = (self._job.strategy.message(broadcast, device) for device in cohort)
            return sum(array_of(tensor).nbytes for message in messages for tensor in message.values())


def _checked(state: ServerState) -> ServerState:
    if not isinstance(state, ServerState):
        raise TypeError(f"returned {type(state).__name__}, expected a ServerState")
    check_tensors(state.broadcast, "the broadcast's")
    check_tensors(state.private, "the server's private")
    return state
