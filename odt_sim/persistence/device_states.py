"""What strategies keep on devices, in files that a block of devices writes in a round."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from numpy.typing import NDArray

from odt_sim.errors import CheckpointError, MissingError, VersionError
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Layout, Weights
from odt_sim.persistence.storage import Storage
from odt_sim.persistence.tensor_file import TensorFile, packed
from odt_sim.persistence.versions import Version
from odt_sim.strategies.base import array_of

State = dict[str, Weights | NDArray[Any]]

GROUPED = 64 << 10
"""Bytes of states from which on a file takes no further device.

Small states share a file, since making and removing one costs more than what is in it. A file stays until no device in it is
referred to. Where the cohort is a sample, that is when the last of its k devices was drawn again: after 1 + 1/2 + .. + 1/k
times the rounds between two turns of a device, by which factor the files are larger than what is referred to (2.6 for 7
devices, 4.1 for 32). Large states have a file each and no such factor.
"""


def pack_state(
    name: str,
    state: Mapping[str, Weights | NDArray[Any]],
    model: TrainableModel,
    texts: Mapping[str, str] | None = None,
) -> bytes:
    """Returns a file of named weights and arrays, with the names of the parameters that each of the weights holds.

    Args:
        name: The file's name, which it carries so that a copy is not taken for another file.
        state: The weights and arrays by name.
        model: The model whose weights they are.
        texts: More to keep beside them, by name.

    Raises:
        CheckpointError: An array is of a type that files do not have.
    """
    layouts: dict[tuple[str, ...], int] = {}
    held = {
        name: layouts.setdefault(value.layout.names, len(layouts))
        for name, value in state.items()
        if isinstance(value, Weights)
    }
    own = {"name": name, "fingerprint": model.fingerprint}
    own |= {"layouts": json.dumps(list(layouts)), "weights": json.dumps(held)}
    return packed({name: array_of(value) for name, value in state.items()}, {**(texts or {}), **own})


class StateFile:
    """What a stored file of `pack_state` holds.

    Attributes:
        texts: The texts that were kept beside the state.
    """

    def __init__(self, storage: Storage, name: str, model: TrainableModel) -> None:
        """Reads and checks the file.

        Args:
            storage: Where it is.
            name: Its name there.
            model: The model whose weights it is to hold.

        Raises:
            CheckpointError: It is missing, damaged, of another model, or a copy of another file.
        """
        where = storage.where(name)
        self._file = TensorFile(storage.read(name), where)
        self.texts = self._file.texts
        if self.texts.pop("fingerprint", None) != model.fingerprint:
            raise CheckpointError(
                f"{where}: of another model than {model.where}; start a new run or use that run's model"
            )
        by_name = {parameter.name: parameter for parameter in model.parameters}
        try:
            layouts = json.loads(self.texts.pop("layouts"))
            self._layouts = [Layout(tuple(by_name[name] for name in names)) for names in layouts]
            self._held: dict[str, int] = json.loads(self.texts.pop("weights"))
            own = self.texts.pop("name")
        except (KeyError, ValueError, TypeError) as error:  # whole, but of something else
            raise CheckpointError(f"{where}: no state of a run ({type(error).__name__}: {error})") from error
        if own != name:
            raise CheckpointError(f"{where}: a copy of {own}; put back its own content if there is a copy of that")

    def state(self, prefix: str = "") -> State:
        """Returns a copy of the entries whose names begin with `prefix`, by the rest of their names."""
        return {name.removeprefix(prefix): self._entry(name) for name in self._file.names(prefix)}

    def _entry(self, name: str) -> Weights | NDArray[Any]:
        array = self._file.tensor(name)
        return Weights(self._layouts[self._held[name]], array) if name in self._held else array


class DeviceStore:
    """The devices' states; a round writes beside what earlier rounds wrote."""

    def __init__(self, storage: Storage, model: TrainableModel) -> None:
        """Touches nothing yet.

        Args:
            storage: Where the states are.
            model: The model whose weights they hold.
        """
        self._storage, self._model = storage, model
        self._read: tuple[Version, StateFile] | None = None  # the last one: devices of one file follow each other

    def load(self, device: int, version: Version | None) -> State:
        """Returns the state of a device in a file; empty for None.

        Raises:
            CheckpointError: The file is missing, damaged or of another model.
        """
        if not version:
            return {}
        if not self._read or self._read[0] != version:
            self._read = version, self._needed(version)
        return self._read[1].state(f"{device}/")

    def check(self, versions: Iterable[Version]) -> None:
        """Checks that files of states are whole.

        Raises:
            CheckpointError: One is missing, damaged or of another model.
        """
        for version in sorted(set(versions)):
            self._file(version)

    def save(self, version: Version, states: Mapping[int, State]) -> None:
        """Writes a file with the states of some devices, by id; it lasts after the storage's next `sync`.

        Raises:
            FileError: It cannot be written.
        """
        entries = {f"{device}/{name}": value for device, state in states.items() for name, value in state.items()}
        name = state_name(version)
        self._storage.add(name, pack_state(name, entries, self._model))

    def _needed(self, version: Version) -> StateFile:
        """Reads what going on has only looked for; once the file is gone, that goes back to where it is not needed."""
        try:
            return self._file(version)
        except VersionError:
            raise
        except CheckpointError as error:
            advice = "resume" if isinstance(error, MissingError) else "remove that file and resume"
            raise CheckpointError(
                f"{error}, or {advice}: the run goes on after a kept round without it, or says how, if there is one"
            ) from error

    def _file(self, version: Version) -> StateFile:
        return StateFile(self._storage, state_name(version), self._model)


class RoundStates:
    """Gathers what the devices of a block keep after a round, and writes it in few files."""

    def __init__(self, store: DeviceStore, round: int) -> None:
        """Holds nothing yet.

        Args:
            store: Where to.
            round: The round.
        """
        self._store, self._round = store, round
        self._states: dict[int, State] = {}
        self._size = 0

    def add(self, device: int, state: State) -> int:
        """Takes a device's state as it is now.

        Returns:
            The id of the first device in the file that holds it, or will.
        """
        self._size += sum(array_of(value).nbytes for value in state.values())
        full = self._size >= GROUPED
        self._states[device] = state if full else {name: _copy(value) for name, value in state.items()}
        first = next(iter(self._states))
        if full:
            self.write()
        return first

    def write(self) -> None:
        """Writes what was gathered, if any.

        Raises:
            FileError: It cannot be written.
        """
        if self._states:
            self._store.save(Version(self._round, next(iter(self._states))), self._states)
        self._states, self._size = {}, 0


def _copy(value: Weights | NDArray[Any]) -> Weights | NDArray[Any]:
    return Weights(value.layout, value.vector.copy()) if isinstance(value, Weights) else value.copy()


def state_name(version: Version) -> str:
    """Returns the name of a file of states."""
    return f"devices/{version.file // 1000:03d}/{version.file}.{version.round}.safetensors"
