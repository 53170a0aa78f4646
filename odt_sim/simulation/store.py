"""What strategies keep on devices, one file for each device and round."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from odt_sim.device.checkpoint import read_tensors, write_tensors
from odt_sim.errors import CheckpointError
from odt_sim.files import sync_folder
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Layout, Weights
from odt_sim.strategies.base import array_of

State = dict[str, Weights | NDArray[Any]]


def write_state(
    path: Path,
    state: Mapping[str, Weights | NDArray[Any]],
    model: TrainableModel,
    texts: Mapping[str, str] | None = None,
    *,
    synced: bool = True,
) -> None:
    """Writes named weights and arrays, with the names of the parameters that each of the weights holds.

    Args:
        path: Where.
        state: The weights and arrays by name.
        model: The model whose weights they are.
        texts: More to keep beside them, by name.
        synced: Whether it is on the disk when this returns; see `odt_sim.files.write_file`.

    Raises:
        FileError: The file cannot be written.
    """
    names = {key: value.layout.names for key, value in state.items() if isinstance(value, Weights)}
    arrays = {key: array_of(value) for key, value in state.items()}
    metadata = {**(texts or {}), "weights": json.dumps(names), "fingerprint": model.fingerprint}
    write_tensors(path, arrays, metadata, synced=synced)


def read_state(path: Path, model: TrainableModel) -> tuple[State, dict[str, str]]:
    """Reads what `write_state` wrote.

    Raises:
        CheckpointError: The file is missing, damaged or of another model.
    """
    arrays, texts = read_tensors(path)
    if texts.pop("fingerprint", None) != model.fingerprint:
        raise CheckpointError(f"{path}: of another model than {model.where}; start a new run or use that run's model")
    names: dict[str, list[str]] = json.loads(texts.pop("weights"))
    by_name = {parameter.name: parameter for parameter in model.parameters}
    state: State = dict(arrays)
    for key, held in names.items():
        state[key] = Weights(Layout(tuple(by_name[name] for name in held)), arrays[key])
    return state, texts


class DeviceStore:
    """The devices' states below one folder; a round writes beside what earlier rounds wrote."""

    def __init__(self, folder: Path, model: TrainableModel) -> None:
        """Touches nothing yet.

        Args:
            folder: Where the states are.
            model: The model whose weights they hold.
        """
        self._folder, self._model = folder, model

    def load(self, device: int, round: int) -> State:
        """Returns the state that a device had after `round`; empty for round 0."""
        return read_state(self._path(device, round), self._model)[0] if round else {}

    def save(self, device: int, round: int, state: State) -> None:
        """Writes the state that a device has after `round`; `sync` brings it to the disk."""
        write_state(self._path(device, round), state, self._model, synced=False)

    def sync(self) -> None:
        """Waits until all states are on the disk: once a round, since one by one they would cost more than the training.

        Of a folder that machines share, a file is on its server once it is closed.

        Raises:
            FileError: The disk reports an error.
        """
        if self._folder.exists():
            sync_folder(self._folder)

    def drop(self, device: int, round: int) -> None:
        """Removes a state that no commit refers to any more."""
        self._path(device, round).unlink(missing_ok=True)

    def keep_only(self, kept: Collection[tuple[int, int]]) -> None:
        """Removes all states but those of these devices after these rounds, and what a write that was killed left."""
        paths = {self._path(device, round) for device, round in kept}
        for path in self._folder.glob("*/*.safetensors*"):
            if path not in paths:
                path.unlink(missing_ok=True)

    def _path(self, device: int, round: int) -> Path:
        return self._folder / f"{device // 1000:03d}" / f"{device}.{round}.safetensors"
