"""A run's checkpoint: the last round, the one to report, and the states of devices that these two refer to."""

from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import numpy as np

from odt_sim.errors import CheckpointError
from odt_sim.model.trainable import TrainableModel
from odt_sim.simulation.commit import Commit, CommitFile
from odt_sim.simulation.store import DeviceStore

TORN = (".reported.*", ".server.*")
"""What a commit's file is called until it takes its place: see `odt_sim.files.write_file`."""


class Checkpoint:
    """Two commits below one folder, and devices' states.

    `server.safetensors` is the last round: replacing it commits a round. `reported.<round>.safetensors` is the round that
    validates best of those committed. It is written under a name of its own before its round is committed, and the one
    before it is removed after: whatever dies in between, the rounds that are committed find theirs.

    Attributes:
        path: The folder.
        devices: The folder of the devices' states.
    """

    def __init__(self, path: Path, model: TrainableModel, identity: Mapping[str, str]) -> None:
        """Touches nothing yet.

        Args:
            path: The folder.
            model: The run's model.
            identity: What tells the run from another, by the name of the setting.
        """
        self.path, self.devices = path, path / "devices"
        self._model, self._identity = model, identity
        self._store = DeviceStore(self.devices, model)
        self._last: Commit
        self._reported: Commit | None = None

    @property
    def exists(self) -> bool:
        """Whether a round was committed here."""
        return self._last_file.path.exists()

    @property
    def reported(self) -> Commit:
        """The round to report; the last one where none is better than another."""
        return self._reported or self._last

    def read(self) -> Commit | None:
        """Returns the last commit; None where there is none.

        Raises:
            CheckpointError: It is damaged, or of another run.
        """
        return self._last_file.read()

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
        for path in chain.from_iterable(self.path.glob(pattern) for pattern in ("reported.*", *TORN)):
            if self._reported is None or path != self._reported_file(self._reported.round).path:
                path.unlink()
        held = {(device, round) for commit in self._held for device, round in enumerate(commit.versions.tolist())}
        self._store.keep_only(held)

    def write(self, commit: Commit, *, best: bool) -> None:
        """Commits a round, and drops what neither it nor the round to report refers to.

        Args:
            commit: What holds after the round.
            best: Whether this is the round to report of those so far.

        Raises:
            FileError: A file cannot be written; the last commit is untouched.
        """
        before = self._held
        if (commit.versions == commit.round).any():
            self._store.sync()  # before a commit refers to them
        if best:
            self._reported_file(commit.round).write(commit)
        self._last_file.write(commit)
        replaced = self._reported if best else None
        self._last, self._reported = commit, commit if best else self._reported
        if replaced:
            self._reported_file(replaced.round).path.unlink(missing_ok=True)
        for old in before:
            self._drop_states(old)

    @property
    def _held(self) -> list[Commit]:
        return [commit for commit in (self._last, self._reported) if commit is not None]

    @property
    def _last_file(self) -> CommitFile:
        return CommitFile(self.path / "server.safetensors", self._model, self._identity)

    def _reported_file(self, round: int) -> CommitFile:
        return CommitFile(self.path / f"reported.{round}.safetensors", self._model, self._identity)

    def _required(self, round: int) -> Commit:
        file = self._reported_file(round)
        commit = file.read()
        if commit is None:
            raise CheckpointError(f"{file.path}: missing, though round {round} validates best; start a new run")
        return commit

    def _drop_states(self, old: Commit) -> None:
        unused = old.versions > 0
        for commit in self._held:
            unused &= old.versions != commit.versions
        for device in np.flatnonzero(unused).tolist():
            self._store.drop(device, int(old.versions[device]))
