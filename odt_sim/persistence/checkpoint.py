"""A run's checkpoint: the commits of a few rounds, and the devices' states that they refer to."""

import re
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from odt_sim._support.files import missing, temporary
from odt_sim.errors import CheckpointError, VersionError
from odt_sim.model.tensors import ServerState
from odt_sim.model.trainable import TrainableModel
from odt_sim.persistence.commit import Commit, CommitFile, commit_name, commit_round
from odt_sim.persistence.device_states import DeviceStore, state_names
from odt_sim.persistence.storage import Storage

OURS = re.compile(
    r"server\.\d+\.safetensors|devices/\d{3,}/\d+\.\d+\.safetensors|" + temporary(r"server\.\d+\.safetensors|probe")
)
"""The names of a checkpoint's files; other files are left alone."""


class Checkpoint:
    """The commits of a few rounds, and the devices' states that they refer to.

    A round is committed once its `server.<round>.safetensors` or that of a later round is written; devices' states are
    durable before that. The checkpoint keeps the last commit, the one before it, and, for each of them, the commit of
    the best validated round until then. With an asynchronous server, it also keeps the commits from which devices still
    train. A file of states is removed as soon as no kept commit refers to it.
    """

    def __init__(self, storage: Storage, model: TrainableModel, identity: Mapping[str, str]) -> None:
        """Set the run's storage, model and identity; nothing is read or written.

        Args:
            storage: The run's storage.
            model: The run's model.
            identity: The settings that a resumed run must have, by name.
        """
        self._storage, self._model, self._identity = storage, model, identity
        self._present = frozenset[str]()  # all files, found by `look`
        self._rounds = set[int]()  # the rounds of the commits among them
        self._kept: dict[int, Commit] = {}
        self._last: Commit
        self._before = 0  # the round of the commit before the last
        self._reported: Commit | None = None

    def look(self) -> int:
        """List the files; return the last round with a commit, damaged or not, or 0."""
        self._present = frozenset(self._storage.names())
        self._rounds = {round for round in map(commit_round, self._present) if round is not None}
        return max(self._rounds, default=0)

    @property
    def where(self) -> str:
        """The last commit found by `look`, for errors."""
        return self._file(max(self._rounds)).where

    @property
    def last(self) -> Commit:
        """The last commit, or the state before the first round."""
        return self._last

    @property
    def reported(self) -> Commit:
        """The commit of the round to report: the round with the best validation, or the last one."""
        return self._reported or self._last

    def read(self, warn: Callable[[str], None], check: Callable[[Commit], None]) -> Commit | None:
        """Return the last intact commit, or None if `look` found none.

        All its states are present, and those that its round wrote are intact; checking all might read gigabytes.

        Args:
            warn: Called with a line about each later commit.
            check: Raises a `CheckpointError` if a commit does not fit the run.

        Raises:
            CheckpointError: No commit is intact, or the commits have another format version or belong to another run.
            FileError: A commit cannot be read now, though it may be intact.
        """
        refused: list[CheckpointError] = []
        for round in sorted(self._rounds, reverse=True):
            try:
                commit = self._complete(round)
                check(commit)
                for name in map(commit_name, sorted(commit.earlier - {0})):
                    if name not in self._present:
                        raise missing(self._storage.where(name))
                DeviceStore(self._storage, self._model).check(commit.versions.written(round))
            except VersionError:
                raise
            except CheckpointError as error:
                refused.append(error)
                continue
            for reason in dict.fromkeys(map(str, refused)):  # several commits may refer to one missing file
                warn(f"{reason}: the run resumes after round {round}")
            return commit
        if refused:
            raise refused[0]
        return None

    def committed(self, round: int) -> Commit:
        """Return the kept commit of a round, without changing a file.

        Raises:
            CheckpointError: The commit or a state is missing, or the commit is damaged or belongs to another run.
            FileError: The commit cannot be read now.
        """
        self.look()
        return self._complete(round)

    def state(self, round: int) -> ServerState:
        """Return the server's state after an earlier round from which devices of the last commit still train.

        Raises:
            CheckpointError: The round's commit is missing, damaged or belongs to another run.
            FileError: The commit cannot be read now.
        """
        return self._file(round).read().state

    def begin(self, last: Commit, reported: int | None, reported_before: int | None) -> None:
        """Resume after a commit, without changing a file.

        Args:
            last: The commit that `read` returned, or the state before the first round.
            reported: The round to report if `last` were the last round; None for `last` itself.
            reported_before: The round to report if the round before `last` were the last one.

        Raises:
            CheckpointError: The commit of the round to report is missing, damaged or incomplete.
            FileError: A commit cannot be read now.
        """
        self._kept, self._last, self._reported = {last.round: last}, last, None
        self._before = max((round for round in self._rounds if round < last.round), default=last.round)
        for round in self._rounds & {self._before, reported_before} - {reported, last.round}:
            try:
                self._kept[round] = self._complete(round)
            except VersionError:
                raise
            except CheckpointError:  # it is only needed if the last commit is damaged
                continue
        if reported is not None:
            self._reported = self._kept[reported] = last if reported == last.round else self._required(reported)

    def clean(self) -> None:
        """Remove the files to which no kept commit refers, such as those of a killed process.

        Raises:
            FileError: A file cannot be removed.
        """
        kept = {*map(commit_name, self._needed()), *state_names(_files(self._kept.values()))}
        self._storage.delete(name for name in self._present if OURS.fullmatch(name) and name not in kept)
        self._present = frozenset()

    def write(self, commit: Commit, *, best: bool) -> None:
        """Commit a round, and remove files that only earlier rounds needed.

        Args:
            commit: The state after the round.
            best: Whether this round validates best so far.

        Raises:
            FileError: A file cannot be written; the last commit stays unchanged.
        """
        if commit.versions.written(commit.round):
            self._storage.sync()  # devices' states, before a commit refers to them
        self._file(commit.round).write(commit)
        before, needed, kept = self._kept, self._needed(), (self.reported, self._last, commit)
        self._kept = {commit.round: commit for commit in kept}
        self._before, self._last, self._reported = self._last.round, commit, commit if best else self._reported
        dropped = [commit for round, commit in before.items() if round not in self._kept and round > 0]
        unneeded = np.setdiff1d(_files(dropped), _files(self._kept.values()), assume_unique=True)
        self._storage.delete([*map(commit_name, sorted(needed - self._needed() - {0})), *state_names(unneeded)])

    def report_last(self) -> None:
        """Report the last commit, because it validates best; no file changes."""
        self._reported = self._last

    def _needed(self) -> set[int]:
        """Return the rounds of the kept commits, and those from which devices still train when the run is resumed.

        The commit of the round to report is only evaluated, so it needs no earlier ones.
        """
        resumed = [commit for round, commit in self._kept.items() if round >= self._before]
        return {*self._kept, *(round for commit in resumed for round in commit.earlier)}

    def _file(self, round: int) -> CommitFile:
        return CommitFile(self._storage, round, self._model, self._identity)

    def _complete(self, round: int) -> Commit:
        """Return a round's commit if all its states are present.

        Raises:
            CheckpointError: The commit or a state is missing, or the commit is damaged or belongs to another run.
        """
        commit = self._file(round).read()
        for name in state_names(commit.versions.files):
            if name not in self._present:
                raise missing(self._storage.where(name))
        return commit

    def _required(self, round: int) -> Commit:
        try:
            return self._complete(round)
        except VersionError:
            raise
        except CheckpointError as error:
            raise CheckpointError(
                f"{error}, or start a new run: round {round}, which validates best, needs it"
            ) from error


def _files(commits: Iterable[Commit]) -> NDArray[np.int64]:
    """Return the files of states to which commits refer, as numbers like `Versions.files`."""
    return np.unique(np.concatenate([np.empty(0, np.int64), *(commit.versions.files for commit in commits)]))
