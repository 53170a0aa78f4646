"""The start of a run: in an unused folder, or after the last commit of an interrupted run."""

from collections.abc import Callable, Sequence
from pathlib import Path

from odt_sim._support.files import remove_temporaries, write_file
from odt_sim._support.text import counted
from odt_sim.device.engines import LITERT, RuntimeChoice, quiet
from odt_sim.device.runtime import Runtime
from odt_sim.errors import CheckpointError, ConfigurationError, ModelError
from odt_sim.fleet.calibration import CALIBRATION
from odt_sim.fleet.conditions import Conditions
from odt_sim.metrics.rounds import reported_round
from odt_sim.model.reading.verification import verify
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights, is_finite
from odt_sim.persistence.checkpoint import Checkpoint
from odt_sim.persistence.commit import Commit
from odt_sim.persistence.records import RoundRecord
from odt_sim.persistence.run_folder import INITIAL_MODEL, RECORDS, ROUNDS, TIMELINE, TRAINED_MODEL, RunFolder, checksum
from odt_sim.simulation.executors.job import Job
from odt_sim.simulation.run.commits import TOGETHER


def check_unused(folder: RunFolder, checkpoint: Checkpoint) -> None:
    """Check that neither a run's folder nor its storage contains a run."""
    committed = checkpoint.look()
    if folder.holds_results():
        raise CheckpointError(
            f"{folder.path}: this folder already contains a run; resume it with run(resume=True), or choose another folder"
        )
    if committed:
        raise CheckpointError(
            f"{checkpoint.where}: already contains a stored run; resume it, or choose another location (run.storage)"
        )


def initial_weights(model: TrainableModel, runtime: RuntimeChoice = LITERT) -> Weights:
    """Return a copy of the weights that a model starts with.

    Raises:
        ModelError: A weight is NaN or infinite.
    """
    with quiet():
        initial = Runtime(model, runtime).initial
    if not initial.isfinite():
        first = next(name for name in initial.layout.names if not is_finite(initial[name]))
        raise ModelError(
            f"{model.where}: its initial weights are not all finite, the first is {first}; export it with finite "
            "weights, or with a signature that takes no inputs and sets them: +model.signatures.initialize=NAME"
        )
    return Weights(initial.layout, initial.vector.copy())


def start(
    job: Job,
    folder: RunFolder,
    checkpoint: Checkpoint,
    rounds: int,
    warn: Callable[[str], None],
    first: Callable[[], Commit],
) -> tuple[Commit, list[RoundRecord]]:
    """Prepare a run's folder and checkpoint for the next round; nothing is written before all checks pass.

    Args:
        job: The run's job.
        folder: The run's folder.
        checkpoint: The run's checkpoint.
        rounds: The number of rounds to run.
        warn: Receives a line for each damaged commit.
        first: Returns the state before the first round.

    Returns:
        The last undamaged commit, or the commit of `first`, and the records up to it.

    Raises:
        CheckpointError: All commits are damaged, or the folder or the checkpoint is damaged or belongs to another run.
        ConfigurationError: The run has more rounds already.
        ModelError: LiteRT cannot run the model.
    """
    if not job.runtime.runs_flex:  # LiteRT refuses Flex ops
        verify(job.model.content, job.model.fingerprint, job.model.where)  # `from_content` takes unverified bytes
    committed, recorded = checkpoint.look(), folder.rounds()

    def check(commit: Commit) -> None:
        _check_recorded(recorded, committed, folder.path, job.storage.where(""), commit)

    if (found := checkpoint.read(warn, check)) is not None:
        initial_weights(job.model, job.runtime)  # hides the line that LiteRT's first interpreter prints
    commit = found or first()
    check(commit)
    if commit.round > rounds:
        raise ConfigurationError(
            f"run.rounds: {folder.path} already has {counted(commit.round, 'round')}, found {rounds}; set more"
        )
    kept, first_metric = _committed(recorded, commit), job.metrics[0]
    checkpoint.begin(commit, reported_round(kept, first_metric), reported_round(kept[:-1], first_metric))
    # Truncate the records first: shortened records fit the checkpoint both with and without its later commits.
    folder.truncate_rounds(commit.round)
    if kept and kept[-1] is not recorded[commit.round - 1]:
        folder.replace_last_round(kept[-1])
    checkpoint.clean()
    if commit.round < rounds:
        folder.reopen()
    remove_temporaries(folder.path, (INITIAL_MODEL, TRAINED_MODEL, TIMELINE, *RECORDS))
    write_file(folder.path / INITIAL_MODEL, job.model.content)
    return commit, kept


def _committed(recorded: Sequence[RoundRecord], commit: Commit) -> list[RoundRecord]:
    """Return the records of a commit's rounds, without the uncommitted evaluation of a stopped run's last round."""
    records = list(recorded[: commit.round])
    if not records or checksum(records) == commit.records:
        return records
    return [*records[:-1], records[-1].with_evaluation({}, None)]


def store_calibration(conditions: Conditions | None, directory: Path) -> None:
    """Write the calibration of the devices into the run's folder, so that a resumed run has the same clock.

    Raises:
        FileError: The file cannot be written.
    """
    path = directory / CALIBRATION
    if conditions and conditions.costs and not path.exists():
        write_file(path, conditions.costs.calibration.to_json().encode())


def _check_recorded(
    recorded: Sequence[RoundRecord], committed: int, directory: Path, checkpoint: str, commit: Commit
) -> None:
    """Check that records and checkpoint belong to one run; a killed run may have recorded more rounds.

    Args:
        recorded: The records in `rounds.jsonl`.
        committed: The last round of the checkpoint, even if damaged; 0 for none.
        directory: The run's folder.
        checkpoint: The checkpoint's location.
        commit: The commit to resume after.
    """
    numbers, later = [record.round for record in recorded], recorded[committed:]
    # The first round is committed alone, later ones together if they are short.
    may_be_left = len(later) <= 1 or (committed > 0 and sum(record.seconds for record in later[:-1]) <= TOGETHER)
    if numbers != list(range(1, len(numbers) + 1)) or commit.round > len(numbers) or not may_be_left:
        advice = "resume with the run's own run.storage, or start a new run in another folder"
        if checkpoint.startswith("memory:"):
            advice = (
                "it is lost when its process ends; start a new run in another folder, with a persistent run.storage"
            )
        raise CheckpointError(
            f"{directory / ROUNDS}: has {counted(len(numbers), 'round')}, but the checkpoint in {checkpoint.rstrip('/')} has "
            f"{commit.round}; {advice}"
        )
    if checksum(_committed(recorded, commit)) != commit.records:
        raise CheckpointError(
            f"{directory / ROUNDS}: damaged, its lines up to round {commit.round} differ from the committed ones; "
            "start a new run in another folder"
        )
