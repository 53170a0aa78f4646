"""What holds after a round, and the file that holds it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.errors import CheckpointError
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights
from odt_sim.simulation.store import read_state, write_state
from odt_sim.strategies.base import ServerState, array_of


@dataclass(frozen=True)
class Commit:
    """What holds after a round.

    Attributes:
        round: The round; 0 before the first.
        state: The server's state.
        versions: `[devices]` int64, the round in which each device last wrote a state; 0 for never.
    """

    round: int
    state: ServerState
    versions: NDArray[np.int64]


@dataclass(frozen=True)
class CommitFile:
    """A file that holds a commit of a run.

    Attributes:
        path: Where it is.
        model: The run's model.
        identity: What tells the run from another, by the name of the setting.
    """

    path: Path
    model: TrainableModel
    identity: Mapping[str, str]

    def write(self, commit: Commit) -> None:
        """Replaces the commit that the file holds.

        Raises:
            FileError: The file cannot be written; what it held is untouched.
        """
        state: dict[str, Weights | NDArray[Any]] = {"versions": commit.versions}
        state |= {f"broadcast.{name}": tensor for name, tensor in commit.state.broadcast.items()}
        state |= {f"private.{name}": tensor for name, tensor in commit.state.private.items()}
        write_state(self.path, state, self.model, {"round": str(commit.round), **self.identity})

    def read(self) -> Commit | None:
        """Returns the commit; None where there is no file.

        Raises:
            CheckpointError: The file is damaged, or of another run.
        """
        if not self.path.exists():
            return None
        state, texts = read_state(self.path, self.model)
        for name, expected in self.identity.items():
            if texts.get(name) != expected:
                raise CheckpointError(
                    f"{self.path}: of a run with {name} {texts.get(name)}, this one has {expected}; "
                    "resume with the same configuration, or start a new run"
                )
        broadcast, private = (
            {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
            for prefix in ("broadcast.", "private.")
        )
        return Commit(int(texts["round"]), ServerState(broadcast, private), array_of(state["versions"]))
