"""What is checked once, before a run starts or goes on."""

from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path

import numpy as np

from odt_sim.aggregators.mean import Mean
from odt_sim.data.dataset import digest_of
from odt_sim.data.dataset_checks import check_against
from odt_sim.data.federated import FederatedData
from odt_sim.device.plan import TrainingPlan
from odt_sim.errors import CheckpointError, ConfigurationError, DataError, ModelError, StrategyError
from odt_sim.model.contract import shape_text
from odt_sim.model.manifest import REGRESSIONS
from odt_sim.model.trainable import TrainableModel
from odt_sim.persistence.commit import Commit
from odt_sim.persistence.records import RoundRecord
from odt_sim.persistence.run_folder import ROUNDS, checksum
from odt_sim.settings import Fleet
from odt_sim.simulation.attributes import plain_attributes
from odt_sim.simulation.cohort import straggler_count
from odt_sim.simulation.job import Job


def check_parts(fleet: Fleet, plan: TrainingPlan) -> None:
    """Checks that stragglers can do a part of their work.

    Raises:
        ConfigurationError: The work is a single epoch or step, or none.
    """
    if fleet.stragglers and plan.amount < 2:
        name = "epochs" if plan.steps is None else "steps"
        raise ConfigurationError(
            f"train.{name}: expected at least 2 where fleet.stragglers is {fleet.stragglers}, found {plan.amount}; "
            f"a straggler does fewer {name} than planned"
        )


def check_fit(model: TrainableModel, data: FederatedData, plan: TrainingPlan) -> None:
    """Checks that devices can train a model on their data, and evaluate it.

    Raises:
        ConfigurationError: The plan names a learning rate and the model's is fixed.
        DataError: A shape, a dtype or a label does not fit, or a device has no training or no test example.
        ModelError: The model's loss is not known, or does not fit its answers.
    """
    if model.loss is None:
        raise ModelError(f"{model.where}: has no manifest, so its loss is not known; say it: model.loss=...")
    if model.loss not in (*REGRESSIONS, "binary_crossentropy") and len(model.output.shape) < 2:
        raise ModelError(
            f"{model.where}: 'infer' answers with {shape_text(model.output.shape)}; its loss {model.loss} asks for a number "
            "for each class; choose another loss, or return them"
        )
    if plan.learning_rate is not None and "learning_rate" not in model.capabilities:
        raise ConfigurationError(
            f"train.learning_rate: expected null, since the step size of {model.where} is fixed, "
            f"found {plan.learning_rate}"
        )
    x, y = model.x, model.y
    check_against(data, x.shape[1:], x.dtype, y.shape[1:], y.dtype, model.classes)
    for column, split in ((0, "training"), (2, "test")):
        empty = np.flatnonzero(data.offsets[:, column + 1] == data.offsets[:, column])
        if len(empty):
            raise DataError(
                f"data {data.name}: device {empty[0]} has no {split} example; use fewer devices or another partition"
            )


def check_aggregator(job: Job) -> None:
    """Checks that a strategy leaves the combining of updates to the aggregator, and that a round brings enough of them.

    Raises:
        StrategyError: It combines single updates itself.
        ConfigurationError: A round has too few devices.
        SimulationError: The aggregator's check failed.
    """
    aggregator, strategy, fleet = job.effective_aggregator, job.strategy, job.fleet
    if type(aggregator) is Mean:
        return
    if strategy.keeps_updates:
        raise StrategyError(
            f"strategy {strategy.name}: combines single updates itself, so that aggregator {aggregator.name} has no say; "
            "choose aggregator=mean or another strategy"
        )
    slow = 0 if strategy.partial_work else straggler_count(job.cohort, fleet.stragglers)
    check_updates(job, job.cohort - slow)


def check_updates(job: Job, devices: int) -> None:
    """Checks that the aggregator can combine the updates of so many devices.

    Raises:
        ConfigurationError: They are too few for it.
        SimulationError: Its check failed.
    """
    with job.aggregator_errors(f"in check of {devices} updates", passes=ConfigurationError):
        job.effective_aggregator.check(devices)


def check_recorded(
    recorded: Sequence[RoundRecord], committed: int, directory: Path, checkpoint: str, commit: Commit
) -> None:
    """Checks that a run's records and its checkpoint belong together; a run that died may have recorded a round more.

    Args:
        recorded: The lines of `rounds.jsonl`.
        committed: The last round of the checkpoint, be it damaged or not; 0 where there is none.
        directory: The run's folder, for the error.
        checkpoint: Where the checkpoint is, for the error.
        commit: That of the round after which the run is to go on.

    Raises:
        CheckpointError: One of the two was lost or damaged, or is of another run.
    """
    found = [record.round for record in recorded]
    if found != list(range(1, len(found) + 1)) or not commit.round <= len(found) <= committed + 1:
        advice = "resume with the run's own run.storage, or start a new run in another folder"
        if checkpoint.startswith("memory:"):
            advice = "it lives as long as its process; start a new run in another folder, with a run.storage that lasts"
        raise CheckpointError(
            f"{directory / ROUNDS}: has {len(found)} rounds, the checkpoint in {checkpoint.rstrip('/')} has {commit.round}; "
            f"{advice}"
        )
    if reduce(lambda before, record: checksum(record, before), recorded[: commit.round], 0) != commit.records:
        raise CheckpointError(
            f"{directory / ROUNDS}: damaged, its lines up to round {commit.round} are not those that were committed; "
            "start a new run in another folder"
        )


def settings(job: Job) -> dict[str, str]:
    """Returns what decides a run's outcome, but its rounds and its seed, by the name of the setting.

    Strategy and aggregator are told by their names and plain settings, the data by name, content and how it was spread.
    """
    fleet, data = job.fleet, job.data
    found = {
        "strategy": job.strategy.name,
        **{f"strategy.{name}": words for name, words in plain_attributes(job.strategy).items()},
        "aggregator": job.aggregator.name,
        **{f"aggregator.{name}": words for name, words in plain_attributes(job.aggregator).items()},
        "model": f"{job.model.name} {job.model.fingerprint[:12]}",
        "data": data.name,
        "data.digest": data.digest or digest_of(data.x, data.y),
        "partition": data.spread,
        "fleet.devices": data.devices,
        "fleet.cohort": fleet.cohort,
        "fleet.unseen": fleet.unseen,
        "fleet.stragglers": float(fleet.stragglers),
        "fleet.adaptation_steps": fleet.adaptation_steps,
        "fleet.evaluated": fleet.evaluated,
        "fleet.largest_update": fleet.largest_update,
        "fleet.quarantine_after": fleet.quarantine_after,
        "train.epochs": job.plan.epochs,
        "train.learning_rate": job.plan.learning_rate,
        "train.steps": job.plan.steps,
    }
    return {name: str(value) for name, value in found.items()}


def identity(job: Job, settings: Mapping[str, str]) -> dict[str, str]:
    """Returns what must be the same where a run goes on, by the name of the setting: the data to the example.

    Args:
        job: The run's job.
        settings: What `settings` says of it.
    """
    data = job.data
    known = {name: value for name, value in settings.items() if name != "model"}  # a checkpoint names its own
    return {
        "seed": str(job.seed),
        **known,
        "data": f"{data.name} {digest_of(data.indices, data.offsets, data.x, data.y)}",
    }
