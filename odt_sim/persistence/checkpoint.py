"""A run's checkpoint: the commits of a few rounds, and the states of devices that these refer to."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from concurrent.futures import Future, ThreadPoolExecutor, wait

from odt_sim.errors import CheckpointError, MissingError, VersionError
from odt_sim.model.trainable import TrainableModel
from odt_sim.persistence.commit import Commit, CommitFile, commit_name, commit_round, segment_name, write_segment
from odt_sim.persistence.device_states import DeviceStore, state_name
from odt_sim.persistence.files import missing, temporary
from odt_sim.persistence.storage import Storage
from odt_sim.persistence.versions import Version

OURS = re.compile(
    r"(server|versions)\.\d+\.safetensors|devices/\d{3,}/\d+\.\d+\.safetensors|"
    + temporary(r"server\.\d+\.safetensors|probe")
)
"""What a checkpoint's files are called; whatever else lies there is somebody else's."""


class Checkpoint:
    """The commits of a few rounds, the segments of their versions, and devices' states.

    A round is committed once `server.<round>.safetensors` is there. Kept are the last round, the one before it, with which a
    run goes on where the last is damaged, and the round that validates best up to each of the two. Whatever dies in between,
    the rounds that are committed find theirs.
    """

    def __init__(self, storage: Storage, model: TrainableModel, identity: Mapping[str, str]) -> None:
        """Touches nothing yet.

        Args:
            storage: Where it is.
            model: The run's model.
            identity: What tells the run from another, by the name of the setting.
        """
        self._storage, self._model, self._identity = storage, model, identity
        self._present = frozenset[str]()  # what `look` has found, until `begin`
        self._left = list[str]()  # what of that goes, until `clean`
        self._found = set[int]()  # the rounds of which that holds a commit
        self._last: Commit
        self._reported: Commit | None = None
        self._names: dict[int, set[str]] = {}  # for each commit that is kept the names of the files that it consists of
        self._devices = Counter[Version]()  # for each file of states how many devices the last round refers to in it
        self._held: dict[Version, int] = {}  # files to which only earlier rounds refer, each with the last of these
        self._remover = ThreadPoolExecutor(1)
        self._removal = Future[None]()  # what was dropped last
        self._removal.set_result(None)

    def look(self) -> int:
        """Looks which rounds were committed here, be their commits damaged or not.

        Returns:
            The last one; 0 for none.
        """
        self._present = frozenset(self._storage.names())
        found = map(commit_round, self._present)
        self._found = {round for round in found if round is not None}
        return max(self._found, default=0)

    @property
    def where(self) -> str:
        """What an error calls it: the place of the last commit that `look` has found."""
        return self._file(max(self._found)).where

    @property
    def reported(self) -> Commit:
        """The round to report; the last one where none is better than another."""
        return self._reported or self._last

    def read(self, warn: Callable[[str], None], check: Callable[[Commit], None]) -> Commit | None:
        """Returns the last commit that is whole, or None where `look` has found none.

        The states that its round wrote are whole, too. Those of earlier rounds are there; to read all may be gigabytes.

        Args:
            warn: Is told of each later commit what is wrong with it.
            check: Raises a `CheckpointError` where something else does not fit a commit.

        Raises:
            CheckpointError: None is whole, or they are of another run; or one is of another version, which stays; or rounds
                before the last would be lost for what is missing.
            FileError: One cannot be read for now, and stays: it may be whole.
        """
        refused: dict[int, CheckpointError] = {}
        for round in sorted(self._found, reverse=True):
            try:
                commit = self._complete(round)
                check(commit)
                DeviceStore(self._storage, self._model).check(commit.versions.written(round).values())
            except VersionError:
                raise
            except CheckpointError as error:
                refused[round] = error
                continue
            self._check_loss(refused, round)
            for reason in dict.fromkeys(map(str, refused.values())):  # one file may be missing to several rounds
                warn(f"{reason}: the run goes on after round {round}")
            return commit
        if refused:
            raise refused[max(refused)]
        return None

    def _check_loss(self, refused: Mapping[int, CheckpointError], whole: int) -> None:
        """Lets the user decide where what is missing, of which there may be a copy, would cost more than the last round.

        He decides by commits that are empty, not gone: a run with records of more rounds has lost its checkpoint.
        """
        lacking = sorted(round for round, error in refused.items() if isinstance(error, MissingError))
        if lacking and max(self._found) - whole > 1:
            raise CheckpointError(
                f"{refused[lacking[-1]]}, or empty {' and '.join(map(commit_name, lacking))} in {self._storage.where('')}"
                f" and resume: the run then goes on after round {whole}"
            )

    def begin(self, last: Commit, reported: int | None, reported_before: int | None) -> None:
        """Goes on after a commit; touches nothing yet.

        Args:
            last: What `read` returned, or what holds before the first round.
            reported: The round to report, of those committed; None for the last one, whichever that will be.
            reported_before: The same as it was before the last round.

        Raises:
            CheckpointError: The commit of the round to report is missing or damaged, or a state that it refers to is missing;
                or a commit is of another version.
            FileError: A commit cannot be read for now.
        """
        self._last = last
        self._reported = None
        if reported is not None:
            self._reported = last if reported == last.round else self._required(reported)
        earlier = [self._reported] if self._reported else []
        for round in self._found & ({last.round - 1, reported_before} - {reported, last.round}):
            try:
                earlier.append(self._complete(round))
            except VersionError:
                raise
            except CheckpointError:  # it was kept for the case that the last one is damaged
                continue
        self._names = {commit.round: _names(commit) for commit in (*earlier, last)}
        self._devices = Counter(last.versions.files())
        held = ((file, commit.round) for commit in earlier for file in commit.versions.files())
        self._held = {file: round for file, round in sorted(held, key=lambda one: one[1]) if file not in self._devices}
        kept = {*set().union(*self._names.values()), *map(state_name, self._devices), *map(state_name, self._held)}
        self._left = [name for name in self._present if OURS.fullmatch(name) and name not in kept]
        self._present = frozenset()

    def clean(self) -> None:
        """Removes what a killed process has left of rounds that are later or older than those of `begin`.

        Raises:
            FileError: It cannot be removed.
        """
        self._storage.delete(self._left)
        self._left = []

    def write(self, commit: Commit, *, best: bool) -> None:
        """Commits a round, and drops what none of the commits that are kept refers to.

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
        self._file(commit.round).write(commit)
        kept = {commit.round, self._last.round, self.reported.round}
        dropped = set().union(*(names for round, names in self._names.items() if round not in kept))
        self._names = {round: names for round, names in self._names.items() if round in kept}
        self._names[commit.round] = _names(commit)
        replaced = self._last.versions.of(list(written))
        self._last, self._reported = commit, commit if best else self._reported
        unused = [*dropped.difference(*self._names.values()), *map(state_name, self._unused(written, replaced, kept))]
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

    def _unused(
        self, written: Mapping[int, Version], replaced: Mapping[int, Version], kept: Set[int]
    ) -> Iterable[Version]:
        """Counts a committed round's new and replaced versions; returns the files to which no commit refers any more."""
        self._devices.update(written.values())
        self._devices.subtract(replaced.values())
        for file in {file for file in replaced.values() if not self._devices[file]}:
            del self._devices[file]
            self._held[file] = self._last.round - 1
        unused = [file for file, until in self._held.items() if not any(file.round <= round <= until for round in kept)]
        for file in unused:
            del self._held[file]
        return unused

    def _file(self, round: int) -> CommitFile:
        return CommitFile(self._storage, round, self._model, self._identity)

    def _complete(self, round: int) -> Commit:
        """Returns a round's commit, the states of which are there, be they whole or not.

        Raises:
            CheckpointError: A file is missing, or the commit is damaged or of another run.
        """
        commit = self._file(round).read()
        gone = (file for file in commit.versions.files() if state_name(file) not in self._present)
        if (file := min(gone, default=None)) is not None:
            raise missing(self._storage.where(state_name(file)))
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


def _names(commit: Commit) -> set[str]:
    """Returns the names of the files that a commit consists of, but for devices' states."""
    return {commit_name(commit.round), *(segment_name(segment.round) for segment in commit.versions.segments)}
