"""The committed state of a round, and its file."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.errors import CheckpointError
from odt_sim.model.tensors import ServerState, array_of
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights
from odt_sim.persistence.device_states import State, pack_state, read_state
from odt_sim.persistence.storage import Storage
from odt_sim.persistence.versions import Versions


@dataclass(frozen=True)
class Commit:
    """The committed state of a round.

    Attributes:
        round: The round; 0 before the first round.
        state: The server's state.
        versions: The files of the devices' states.
        failures: For each device that was excluded from its last round, the number of consecutive exclusions.
        records: The checksum of the records of all rounds up to this one.
        clock: The state of the virtual clock by name, such as the batteries; empty without a clock.
        earlier: The earlier rounds with broadcasts from which devices still train.
    """

    round: int
    state: ServerState
    versions: Versions
    failures: Mapping[int, int]
    records: int = 0
    clock: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    earlier: frozenset[int] = frozenset()


@dataclass(frozen=True)
class CommitFile:
    """The file of a round's commit.

    Attributes:
        storage: The run's storage.
        round: The round.
        model: The run's model.
        identity: The settings that a resumed run must have, by name.
    """

    storage: Storage
    round: int
    model: TrainableModel
    identity: Mapping[str, str]

    @property
    def where(self) -> str:
        """The file's name in errors."""
        return self.storage.where(commit_name(self.round))

    def write(self, commit: Commit) -> None:
        """Write the commit, whole or not at all.

        Raises:
            FileError: The file cannot be written.
        """
        state: dict[str, Weights | NDArray[Any]] = {
            "versions": commit.versions.entries,
            "failures": np.array(list(commit.failures.items()), np.int64).reshape(-1, 2),
        }
        state |= {f"broadcast.{name}": tensor for name, tensor in commit.state.broadcast.items()}
        state |= {f"private.{name}": tensor for name, tensor in commit.state.private.items()}
        state |= {f"clock.{name}": array for name, array in commit.clock.items()}
        if commit.earlier:
            state["earlier"] = np.array(sorted(commit.earlier), np.int64)
        texts = {"round": str(commit.round), "records": str(commit.records), **self.identity}
        name = commit_name(self.round)
        self.storage.replace(name, pack_state(name, state, self.model, texts))

    def read(self) -> Commit:
        """Return the commit.

        Raises:
            CheckpointError: The file is missing, damaged or belongs to another run.
        """
        state, texts = read_state(self.storage, commit_name(self.round), self.model)
        self._check_identity(texts)
        try:
            failures = dict(array_of(state["failures"]).tolist())
            server = ServerState(_part(state, "broadcast."), _part(state, "private."))
            versions = Versions(array_of(state["versions"]))
            clock = {name: array_of(value) for name, value in _part(state, "clock.").items()}
            earlier = frozenset(array_of(state["earlier"]).tolist()) if "earlier" in state else frozenset[int]()
            return Commit(int(texts["round"]), server, versions, failures, int(texts["records"]), clock, earlier)
        except (KeyError, ValueError, TypeError) as error:
            raise CheckpointError(
                f"{self.where}: not a commit ({type(error).__name__}: {error}); restore it from a backup"
            ) from error

    def _check_identity(self, texts: Mapping[str, str]) -> None:
        found = {name: text for name, text in texts.items() if name not in ("round", "records")}
        for name in dict.fromkeys([*self.identity, *found]):
            if not _same(name, found.get(name), self.identity.get(name)):
                earlier = "" if name in found else " (with the run's version of odt_sim, if it lacks this setting)"
                raise CheckpointError(
                    f"{self.where}: belongs to a run with {name} {found.get(name)}, but this run has "
                    f"{self.identity.get(name)}; resume with the same configuration{earlier}, or start a new run"
                )


def _same(name: str, found: str | None, expected: str | None) -> bool:
    """Return whether a setting equals the run's; data may have been renamed, so only its digest is compared."""
    if name == "data" and found and expected:
        return found.rpartition(" ")[2] == expected.rpartition(" ")[2]
    return found == expected


def commit_name(round: int) -> str:
    """Return the name of a commit's file."""
    return f"server.{round}.safetensors"


def commit_round(name: str) -> int | None:
    """Return the round of a commit's file; None for any other name."""
    match = re.fullmatch(r"server\.(\d+)\.safetensors", name)
    return int(match[1]) if match else None


def _part(state: State, prefix: str) -> State:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
