"""The states that strategies keep on devices, in files that each block of devices writes in a round."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.errors import CheckpointError, VersionError
from odt_sim.model.tensors import array_of
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Layout, Weights
from odt_sim.persistence.storage import Storage
from odt_sim.persistence.tensor_file import packed, unpacked
from odt_sim.persistence.versions import Version

State = dict[str, Weights | NDArray[Any]]

GROUPED = 64 << 10
"""Bytes of states after which a file is full.

Small states share a file, because creating and removing a file costs more than its content. A file stays until no
commit refers to any device in it; with sampled cohorts, files of k devices store 1 + 1/2 + ... + 1/k times what is
needed. Large states have a file each.
"""


def pack_state(
    name: str, state: Mapping[str, Weights | NDArray[Any]], model: TrainableModel, texts: Mapping[str, str]
) -> bytes:
    """Return the content of a file of weights and arrays.

    Args:
        name: The file's name; it is stored, so that a copy under another name is detected.
        state: The weights and arrays by name.
        model: The model of the weights.
        texts: Texts to store with them, by name.

    Raises:
        CheckpointError: An array has a type that cannot be stored.
    """
    state = dict(sorted(state.items()))  # the order in memory differs after resuming
    layouts: dict[tuple[str, ...], int] = {}
    held = {
        name: layouts.setdefault(value.layout.names, len(layouts))
        for name, value in state.items()
        if isinstance(value, Weights)
    }
    own = {"name": name, "fingerprint": model.fingerprint}
    own |= {"layouts": json.dumps(list(layouts)), "weights": json.dumps(held)}
    return packed({name: array_of(value) for name, value in state.items()}, {**texts, **own})


def read_state(storage: Storage, name: str, model: TrainableModel) -> tuple[State, dict[str, str]]:
    """Return the state and the texts of a file from `pack_state`.

    Raises:
        CheckpointError: The file is missing, damaged, belongs to another model, or is a copy of another file.
    """
    where = storage.where(name)
    tensors, texts = unpacked(storage.read(name), where)
    if texts.pop("fingerprint", None) != model.fingerprint:
        raise CheckpointError(
            f"{where}: belongs to a different model than {model.where}; start a new run, or resume with the model in "
            "the run's folder: "
            "model=tflite model.path=FOLDER/initial.tflite"
        )
    by_name = {parameter.name: parameter for parameter in model.parameters}
    try:
        layouts = [Layout(tuple(by_name[name] for name in names)) for names in json.loads(texts.pop("layouts"))]
        held: dict[str, int] = json.loads(texts.pop("weights"))
        written = texts.pop("name")
    except (KeyError, ValueError, TypeError) as error:
        raise CheckpointError(
            f"{where}: not a device state of a run ({type(error).__name__}: {error}); restore it from a backup"
        ) from error
    if written != name:
        raise CheckpointError(f"{where}: contains a copy of {written}; restore its own content from a backup")
    state = {name: Weights(layouts[held[name]], array) if name in held else array for name, array in tensors.items()}
    return state, texts


class DeviceStore:
    """The devices' states; a round writes new files and does not change files of earlier rounds."""

    def __init__(self, storage: Storage, model: TrainableModel) -> None:
        """Set the run's storage and model."""
        self._storage, self._model = storage, model
        self._cached: tuple[Version, State] | None = None  # consecutive devices share a file

    def load(self, device: int, version: Version | None) -> State:
        """Return a device's state from a file; empty for None.

        Raises:
            CheckpointError: The file is missing, damaged or belongs to another model.
        """
        if not version:
            return {}
        if not self._cached or self._cached[0] != version:
            self._cached = version, self._read(version)
        prefix = f"{device}/"
        found = self._cached[1].items()
        return {name.removeprefix(prefix): _copy(value) for name, value in found if name.startswith(prefix)}

    def check(self, versions: Iterable[Version]) -> None:
        """Check that files of states are intact.

        Raises:
            CheckpointError: A file is missing, damaged or belongs to another model.
        """
        for version in sorted(versions):
            read_state(self._storage, state_name(version), self._model)

    def save(self, version: Version, states: Mapping[int, State]) -> None:
        """Write a file with the states of some devices, by id; it is durable after the storage's next `sync`.

        Raises:
            FileError: The file cannot be written.
        """
        entries = {f"{device}/{name}": value for device, state in states.items() for name, value in state.items()}
        name = state_name(version)
        self._storage.add(name, pack_state(name, entries, self._model, {}))

    def _read(self, version: Version) -> State:
        """Read a file of which only the existence was checked when the run was resumed."""
        try:
            return read_state(self._storage, state_name(version), self._model)[0]
        except VersionError:
            raise
        except CheckpointError as error:
            raise CheckpointError(
                f"{error}, or remove it and resume from an earlier round that does not need it"
            ) from error


class RoundStates:
    """Gathers the states of a block's devices after a round, and writes them in few files."""

    def __init__(self, store: DeviceStore, round: int) -> None:
        """Start with no states.

        Args:
            store: The store to write to.
            round: The round.
        """
        self._store, self._round = store, round
        self._states: dict[int, State] = {}
        self._size = 0

    def add(self, device: int, state: State) -> int:
        """Add a copy of a device's state; return the first device of the file that will contain it."""
        self._size += sum(array_of(value).nbytes for value in state.values())
        full = self._size >= GROUPED
        self._states[device] = state if full else {name: _copy(value) for name, value in state.items()}
        first = next(iter(self._states))
        if full:
            self.write()
        return first

    def write(self) -> None:
        """Write the gathered states, if any.

        Raises:
            FileError: A file cannot be written.
        """
        if self._states:
            self._store.save(Version(self._round, next(iter(self._states))), self._states)
        self._states, self._size = {}, 0


def state_name(version: Version) -> str:
    """Return the name of a file of states."""
    return f"devices/{version.file // 1000:03d}/{version.file}.{version.round}.safetensors"


def state_names(files: NDArray[np.int64]) -> Iterator[str]:
    """Return the names of files, given by their numbers from `Versions.files`."""
    return (state_name(Version(number >> 32, number & 0xFFFFFFFF)) for number in files.tolist())


def _copy(value: Weights | NDArray[Any]) -> Weights | NDArray[Any]:
    return Weights(value.layout, value.vector.copy()) if isinstance(value, Weights) else value.copy()
