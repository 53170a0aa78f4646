"""A run's checkpoint: the last round, the one to report, and the states of devices that these two refer to."""

import re
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait

from odt_sim.errors import CheckpointError
from odt_sim.model.trainable import TrainableModel
from odt_sim.simulation.commit import Commit, CommitFile, segment_name, write_segment
from odt_sim.simulation.store import state_name
from odt_sim.simulation.versions import Version
from odt_sim.storage import Storage

LAST = "server.safetensors"

OURS = re.compile(
    r"(reported|versions)\.\d+\.safetensors|devices/.*\.safetensors"
    r"|\.(server|reported\.\d+)\.safetensors\..*"  # until it takes its place: see `odt_sim.files.write_file`
)
"""What a checkpoint's files are called, but for the last commit's."""


class Checkpoint:
    """Two commits, the segments of their versions, and devices' states.

    `server.safetensors` is the last round: replacing it commits a round. `reported.<round>.safetensors` is the round that
    validates best of those committed. It is written under a name of its own before its round is committed, and the one
    before it is removed after: whatever dies in between, the rounds that are committed find theirs.
    """

    def __init__(self, storage: Storage, model: TrainableModel, identity: Mapping[str, str]) -> None:
        """Touches nothing yet.

        Args:
            storage: Where it is.
            model: The run's model.
            identity: What tells the run from another, by the name of the setting.
        """
        self._storage, self._model, self._identity = storage, model, identity
        self._last: Commit
        self._reported: Commit | None = None
        self._devices = Counter[Version]()  # for each file of states how many devices the last round refers to in it
        self._held = set[Version]()  # files to which the round to report refers, and the last round does not
        self._remover = ThreadPoolExecutor(1)
        self._removal = Future[None]()  # what was dropped last
        self._removal.set_result(None)

    @property
    def where(self) -> str:
        """What an error calls it: the last commit's place."""
        return self._file(LAST).where

    @property
    def exists(self) -> bool:
        """Whether a round was committed here."""
        return self._file(LAST).exists

    @property
    def reported(self) -> Commit:
        """The round to report; the last one where none is better than another."""
        return self._reported or self._last

    def read(self) -> Commit | None:
        """Returns the last commit; None where there is none.

        Raises:
            CheckpointError: It is damaged, or of another run.
        """
        return self._file(LAST).read() if self.exists else None

    def begin(self, last: Commit, reported: int | None) -> None:
        """Goes on after a commit; what a killed process has left of later or older rounds goes.

        Args:
            last: What `read` returned, or what holds before the first round.
            reported: The round to report, of those committed; None for the last one, whichever that will be.

        Raises:
            CheckpointError: The commit of the round to report is missing or damaged.
        """
        self._last = last
        self._reported = None if reported is None else self._required(reported)
        self._devices = Counter(last.versions.files())
        self._held = set(self._reported.versions.files()) - self._devices.keys() if self._reported else set()
        kept = {*self._commit_names(), *map(state_name, self._devices), *map(state_name, self._held)}
        self._storage.delete(name for name in self._storage.names() if OURS.fullmatch(name) and name not in kept)

    def write(self, commit: Commit, *, best: bool) -> None:
        """Commits a round, and drops what neither it nor the round to report refers to.

        That is removed while the next round trains: it can take longer than to write it, and no processor.

        Args:
            commit: What holds after the round.
            best: Whether this is the round to report of those so far.

        Raises:
            FileError: A file cannot be written; the last commit is untouched.
        """
        written = commit.versions.written(commit.round)
        if written:
            write_segment(self._storage, commit.versions.segments[-1], self._model)
            self._storage.sync()  # before a commit refers to them
        if best:
            self._file(_reported_name(commit)).write(commit)
        self._file(LAST).write(commit)
        names, replaced = self._commit_names(), self._last.versions.of(list(written))
        self._last, self._reported = commit, commit if best else self._reported
        unused = [*(names - self._commit_names()), *map(state_name, self._unused(written, replaced))]
        self._removal.result()
        self._removal = self._remover.submit(self._storage.delete, unused)

    def end(self) -> None:
        """Waits until what was dropped is removed.

        Raises:
            FileError: It cannot be.
        """
        self._removal.result()

    def settle(self) -> None:
        """Waits until nothing is being removed, be it that it cannot be: for a run that has failed."""
        wait([self._removal])

    def _unused(self, written: Mapping[int, Version], replaced: Mapping[int, Version]) -> list[Version]:
        """Counts a committed round's new and replaced versions; returns the files to which nothing refers any more."""
        self._devices.update(written.values())
        self._devices.subtract(replaced.values())
        for file in {file for file in replaced.values() if not self._devices[file]}:
            del self._devices[file]
            self._held.add(file)
        until = self._reported.round if self._reported and self._reported is not self._last else 0
        unused = [file for file in self._held if file.round > until]
        self._held.difference_update(unused)
        return unused

    def _commit_names(self) -> set[str]:
        """Returns the names of what the two commits consist of, but for the last commit's own."""
        held = [commit for commit in (self._last, self._reported) if commit is not None]
        segments = {segment_name(segment.round) for commit in held for segment in commit.versions.segments}
        return segments | ({_reported_name(self._reported)} if self._reported else set())

    def _file(self, name: str) -> CommitFile:
        return CommitFile(self._storage, name, self._model, self._identity)

    def _required(self, round: int) -> Commit:
        file = self._file(f"reported.{round}.safetensors")
        if not file.exists:
            raise CheckpointError(f"{file.where}: missing, though round {round} validates best; start a new run")
        return file.read()


def _reported_name(commit: Commit) -> str:
    return f"reported.{commit.round}.safetensors"
