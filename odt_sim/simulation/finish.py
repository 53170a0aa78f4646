"""The end of a run: the devices' records, the summary and the trained model."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from odt_sim.device.native_output import quiet
from odt_sim.device.runtime import Runtime
from odt_sim.errors import ModelError
from odt_sim.files import write_file
from odt_sim.fleet.conditions import Conditions
from odt_sim.model.initial_weights import with_initial_weights
from odt_sim.model.weights import Weights
from odt_sim.persistence.commit import Commit
from odt_sim.persistence.records import DeviceRecord
from odt_sim.persistence.run_folder import TRAINED_MODEL, RunFolder
from odt_sim.persistence.summary import Summary, summarize
from odt_sim.persistence.timeline import Ledger
from odt_sim.simulation.evaluation import Row
from odt_sim.simulation.job import Job


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
) -> Summary:
    """Write the devices' records and the summary; return the summary."""
    metrics = job.metrics
    ledger = _ledger(job, folder, conditions)
    unknown = {f"{prefix}{metric}": None for prefix in ("", "global_", "local_") for metric in metrics}
    for row in rows:
        alone = {f"local_{metric}": row.get(metric) for metric in metrics} if job.strategy.alone else {}
        row.update({**unknown, **row, **alone, **_user(job, row["device"]), **ledger(row["device"])})
    folder.write_devices(map(DeviceRecord.of, rows))
    summary = summarize(
        folder.rounds(),
        rows,
        strategy=job.strategy.name,
        seed=job.seed,
        task=job.task,
        metrics=metrics,
        fleet=(job.data.devices, job.fleet.unseen),
        cohort=job.fleet.cohort,
        reported_round=reported_round,
        target=target,
        settings=settings,
        privacy=privacy,
        stopped=stopped,
    )
    folder.write_summary(summary)
    return summary


def _ledger(job: Job, folder: RunFolder, conditions: Conditions | None) -> Callable[[int], Row]:
    """Return the columns of a device on the clock by its id; none without a clock."""
    if conditions is None:
        return lambda device: {}
    ledger, population = Ledger.of(folder.timeline(), job.data.devices), conditions.population
    return lambda device: {
        "device_class": population.classes[population.of_device[device]].name,
        **ledger.of_device(device),
    }


def _user(job: Job, device: int) -> Row:
    users = job.data.users
    return {} if users is None else {"user": users[device]}


def write_model(job: Job, folder: RunFolder, reported: Commit, warn: Callable[[str], None]) -> None:
    """Write the trained global model, if the whole model travels; else the server has none."""
    shared = reported.state.broadcast.get("weights")
    if not isinstance(shared, Weights) or shared.layout != job.model.moving:
        return
    with quiet():
        weights = Runtime(job.model, job.runtime).initial.replace(shared)  # frozen parameters do not travel
    try:
        content = with_initial_weights(job.model.content, weights, job.model.where)
    except ModelError as error:
        warn(f"{error}; the run's folder has no {TRAINED_MODEL}")
    else:
        write_file(folder.path / TRAINED_MODEL, content)
