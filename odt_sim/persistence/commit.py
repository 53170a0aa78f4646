"""What holds after a round, and the file that holds it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.errors import CheckpointError
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights
from odt_sim.persistence.device_states import StateFile, pack_state
from odt_sim.persistence.storage import Storage
from odt_sim.persistence.versions import Segment, Versions
from odt_sim.strategies.base import ServerState, array_of


@dataclass(frozen=True)
class Commit:
    """What holds after a round.

    Attributes:
        round: The round; 0 before the first.
        state: The server's state.
        versions: Where the devices' states are.
        failures: How often devices have failed in a row.
        records: The checksum of the rounds' records up to this one.
    """

    round: int
    state: ServerState
    versions: Versions
    failures: Mapping[int, int]
    records: int = 0


@dataclass(frozen=True)
class CommitFile:
    """The file that holds a round's commit, beside those that hold the segments of its versions.

    Attributes:
        storage: Where it is.
        round: The round.
        model: The run's model.
        identity: What tells the run from another, by the name of the setting.
    """

    storage: Storage
    round: int
    model: TrainableModel
    identity: Mapping[str, str]

    @property
    def where(self) -> str:
        """What an error calls it."""
        return self.storage.where(commit_name(self.round))

    def write(self, commit: Commit) -> None:
        """Writes the commit, whole or not at all; the segments are there already.

        Raises:
            FileError: The file cannot be written.
        """
        rounds = [segment.round for segment in commit.versions.segments]
        state: dict[str, Weights | NDArray[Any]] = {"versions.segments": np.array(rounds, np.int64)}
        state["fleet.failures"] = np.array(list(commit.failures.items()), np.int64).reshape(-1, 2)
        state |= {f"broadcast.{name}": tensor for name, tensor in commit.state.broadcast.items()}
        state |= {f"private.{name}": tensor for name, tensor in commit.state.private.items()}
        texts = {"round": str(commit.round), "records": str(commit.records), **self.identity}
        name = commit_name(self.round)
        self.storage.replace(name, pack_state(name, state, self.model, texts))

    def read(self) -> Commit:
        """Returns the commit.

        Raises:
            CheckpointError: The file, or that of a segment, is missing, damaged or of another run.
        """
        file = StateFile(self.storage, commit_name(self.round), self.model)
        for name in dict.fromkeys([*self.identity, *file.texts]):
            found, expected = file.texts.get(name), self.identity.get(name)
            if found != expected and name not in ("round", "records"):  # see `write`
                raise CheckpointError(
                    f"{self.where}: of a run with {name} {found}, this one has {expected}; "
                    "resume with the same configuration, or start a new run"
                )
        try:
            return self._commit(file)
        except (KeyError, ValueError, TypeError) as error:  # whole, but of something else
            raise CheckpointError(f"{self.where}: no commit of a round ({type(error).__name__}: {error})") from error

    def _commit(self, file: StateFile) -> Commit:
        rounds = array_of(file.state("versions.")["segments"]).tolist()
        versions = Versions(tuple(read_segment(self.storage, round, self.model) for round in rounds))
        state = ServerState(file.state("broadcast."), file.state("private."))
        failures = dict(array_of(file.state("fleet.")["failures"]).tolist())
        return Commit(int(file.texts["round"]), state, versions, failures, int(file.texts["records"]))


def commit_name(round: int) -> str:
    """Returns the name of a commit's file."""
    return f"server.{round}.safetensors"


def commit_round(name: str) -> int | None:
    """Returns the round of a commit's file; None for the name of another."""
    found = re.fullmatch(r"server\.(\d+)\.safetensors", name)
    return int(found[1]) if found else None


def write_segment(storage: Storage, segment: Segment, model: TrainableModel) -> None:
    """Writes a segment of versions; it lasts after the storage's next `sync`.

    Raises:
        FileError: It cannot be written.
    """
    name = segment_name(segment.round)
    storage.add(name, pack_state(name, {"entries": segment.entries}, model))


def read_segment(storage: Storage, round: int, model: TrainableModel) -> Segment:
    """Returns the segment that a round added.

    Raises:
        CheckpointError: The file is missing, damaged or of another model.
    """
    return Segment(round, array_of(StateFile(storage, segment_name(round), model).state()["entries"]))


def segment_name(round: int) -> str:
    """Returns the name of a segment's file."""
    return f"versions.{round}.safetensors"
