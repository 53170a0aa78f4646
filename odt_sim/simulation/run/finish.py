"""The end of a run: the devices' records, the summary and the trained model."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from odt_sim._support.files import write_file
from odt_sim.data.dataset import digest_of
from odt_sim.errors import ModelError
from odt_sim.fleet.conditions import Conditions
from odt_sim.model.contract.identity import model_digest
from odt_sim.model.editing.initial_weights import with_initial_weights
from odt_sim.model.weights import Weights
from odt_sim.persistence.commit import Commit
from odt_sim.persistence.environment import environment
from odt_sim.persistence.records import DeviceRecord, RoundRecord
from odt_sim.persistence.run_folder import TRAINED_MODEL, RunFolder
from odt_sim.persistence.summary import Summary, summarize
from odt_sim.persistence.timeline import Ledger
from odt_sim.simulation.clock.totals import available_share, deployment_costs, fleet_totals
from odt_sim.simulation.clock.work import LocalWork
from odt_sim.simulation.executors.job import Job
from odt_sim.simulation.run.cohort import choose_unseen
from odt_sim.simulation.run.evaluation import DEPLOY_WORK, Row
from odt_sim.simulation.run.round import Rounds
from odt_sim.simulation.run.start import initial_weights


def evaluate_last_round(steps: Rounds, folder: RunFolder, last: Commit) -> Sequence[RoundRecord]:
    """Evaluate the last round of a stopped run, unless its evaluation was due; return the records of all rounds.

    This evaluation is not committed: resuming drops it, so that a run that then continues has the same bits as one that
    was never stopped.
    """
    records = folder.rounds()
    if not records[-1].figures:
        rows = list(steps.evaluate("evaluate", last))
        records[-1] = steps.evaluated(records[-1], rows, records[-1].seconds)
        folder.replace_last_round(records[-1])
    return records


def undefined_metrics(job: Job, rows: Sequence[Row], rounds: Sequence[RoundRecord]) -> str | None:
    """Return a warning about user metrics that have no finite value on any device in any round; otherwise None."""
    if all("not_evaluated" in row for row in rows):
        return None
    measured = [*rows, *(record.figures for record in rounds)]
    values = {own.name: [row[own.name] for row in measured if row.get(own.name) is not None] for own in job.own_metrics}
    names = [name for name, known in values.items() if not np.isfinite(known).any()]
    if not names:
        return None
    return (
        f"metrics: {', '.join(names)}: no finite value on any device in any round; correct what the function returns for a "
        "device's outputs and targets, or leave it out"
    )


def unchosen_round(job: Job, rounds: Sequence[RoundRecord]) -> str | None:
    """Return a warning if the first metric is undefined on validation examples, so that it chose no round; else None."""
    first = job.metrics[0]
    column = f"validation_{first}"
    values = [record.figures[column] for record in rounds if column in record.figures]
    if not values or any(value is not None for value in values):
        return None
    return (
        f"run.metric: {first} is undefined on the validation examples of all devices in every round, so the last "
        "round is reported and the run cannot stop early; select rounds by another metric, such as run.metric=loss, "
        "or provide validation examples on which it is defined"
    )


def write_results(
    job: Job,
    folder: RunFolder,
    rows: Sequence[Row],
    reported_round: int,
    *,
    settings: Mapping[str, str],
    target: float | None,
    privacy: Mapping[str, Any] | None,
    conditions: Conditions | None,
    stopped: str | None,
    pruned: bool | None = None,
    backend: str | None = None,
) -> Summary:
    """Write the devices' records and the summary; return the summary."""
    metrics = job.metrics
    costs = None if conditions is None else Ledger.of(folder.timeline(), job.data.devices)
    counted = {row["device"]: row.pop(DEPLOY_WORK) for row in rows if DEPLOY_WORK in row}
    works = {device: LocalWork(calls, examples, 0, 0) for device, (calls, examples) in counted.items()}
    ledger = _ledger(rows, folder, conditions, costs, works)
    unknown = {f"{prefix}{metric}": None for prefix in ("", "global_", "local_") for metric in metrics}
    users = job.data.users
    for row in rows:
        user = {} if users is None else {"user": users[row["device"]]}
        alone = {f"local_{metric}": row.get(metric) for metric in metrics} if job.strategy.alone else {}
        row.update({**unknown, **row, **alone, **user, **ledger(row["device"])})
    folder.write_devices(map(DeviceRecord.of, rows))
    totals = None
    if conditions is not None and costs is not None:
        unseen = choose_unseen(job.data.devices, job.fleet.unseen, job.seed)
        totals = fleet_totals(costs, conditions, job.data, np.delete(np.arange(job.data.devices), unseen))
    summary = summarize(
        folder.rounds(),
        rows,
        strategy=job.strategy.name,
        seed=job.seed,
        task=job.task,
        metrics=metrics,
        fleet=(job.data.devices, job.fleet.unseen_count),
        cohort=job.fleet.cohort,
        reported_round=reported_round,
        target=target,
        settings=settings,
        privacy=privacy,
        stopped=stopped,
        pruned=pruned,
        fleet_totals=totals,
        own_metrics={own.name: own.higher_is_better for own in job.own_metrics} or None,
        environment={**environment(), "runtime": job.runtime.name, **({"backend": backend} if backend else {})},
        model_digest=model_digest(job.model, initial_weights(job.model, job.runtime)),
        split_digest=digest_of(job.data.indices, job.data.offsets),
    )
    folder.write_summary(summary)
    return summary


def _ledger(
    rows: Sequence[Row],
    folder: RunFolder,
    conditions: Conditions | None,
    costs: Ledger | None,
    works: Mapping[int, LocalWork],
) -> Callable[[int], Row]:
    """Return a function from a device's id to its columns of the clock; they are empty without a clock."""
    if conditions is None or costs is None:
        return lambda device: {}
    population, ids = conditions.population, np.array([row["device"] for row in rows], np.int64)
    deployment = deployment_costs(conditions, works)
    ends = [line.end for line in folder.timeline()]
    shares = available_share(conditions, ids, max(ends, default=0.0))
    available = dict(zip(ids.tolist(), shares.tolist(), strict=True))
    return lambda device: {
        "device_class": population.classes[population.of_device[device]].name,
        "available": available[device],
        **costs.of_device(device),
        **deployment.get(device, {}),
    }


def write_model(job: Job, folder: RunFolder, reported: Commit, warn: Callable[[str], None]) -> None:
    """Write the trained global model if the whole model travels; otherwise the server has no global model."""
    shared = reported.state.broadcast.get("weights")
    if not isinstance(shared, Weights) or shared.layout != job.model.moving:
        return
    weights = initial_weights(job.model, job.runtime).replace(shared)  # frozen parameters do not travel
    try:
        content = with_initial_weights(job.model.content, weights, job.model.where)
    except ModelError as error:
        warn(f"{error}; the run's folder has no {TRAINED_MODEL}")
    else:
        write_file(folder.path / TRAINED_MODEL, content)
