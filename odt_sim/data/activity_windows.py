"""UCI Human Activity Recognition Using Smartphones: nine inertial signals of 30 people in six activities.

Anguita et al., "A Public Domain Dataset for Human Activity Recognition Using Smartphones", ESANN 2013. Windows of 128
samples at 50 Hz (2.56 s) overlap by half, so adjacent windows share 64 samples: split them by block.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import DTypeLike

from odt_sim._support.checks import names_arguments
from odt_sim.data.columns import only
from odt_sim.data.dataset import Array, Dataset, Indices
from odt_sim.data.dataset_checks import check
from odt_sim.data.sources import read_npz
from odt_sim.errors import DataError, one_line

SIGNALS = tuple(f"{kind}_{axis}" for kind in ("body_acc", "body_gyro", "total_acc") for axis in "xyz")
ACTIVITIES = ("walking", "walking upstairs", "walking downstairs", "sitting", "standing", "laying")


@names_arguments
def uci_har(path: str | os.PathLike[str]) -> Dataset:
    """Read the raw signals of the published training and test people; each person is a user.

    Consecutive windows that overlap by half form a sequence.

    Args:
        path: The unpacked folder `UCI HAR Dataset`, or an `.npz` file with `x` `[windows, 9, samples]` in the order of
            `SIGNALS`, `y` `[windows]` in 0..5 and `subject` `[windows]`, windows in chronological order.

    Returns:
        `x` `[windows, 9, samples]` float32 (accelerations in g, angular velocities in rad/s), `y` `[windows]` int32 in the
        order of `ACTIVITIES`, `users` and `sequences` `[windows]`.

    Raises:
        DataError: A file is missing or damaged, or its values do not fit.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise DataError(
            f"data {path}: does not exist; give the path of the unpacked folder 'UCI HAR Dataset', or of an .npz file"
        )
    x, y, subject = _from_folder(path) if path.is_dir() else _from_npz(path)
    dataset = check(Dataset("uci_har", x, y, subject, len(ACTIVITIES), class_names=ACTIVITIES))
    if x.ndim != 3 or x.shape[1] != len(SIGNALS):
        raise DataError(f"data {path}: x has shape {list(x.shape)}, expected [windows, 9, samples]")
    windows = only(dataset.x, f"data {path}: x", "give one")
    return check(replace(dataset, x=windows, sequences=_sequences(windows, subject)))


def _from_npz(path: Path) -> tuple[Array, Array, Array]:
    arrays = read_npz(path, ["x", "y", "subject"])
    return arrays["x"], arrays["y"], arrays["subject"]


def _from_folder(path: Path) -> tuple[Array, Array, Array]:
    parts = [_part(path, part) for part in ("train", "test")]
    x, y, subject = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return x, y - 1, subject  # activities are numbered from 1 in the files


def _part(path: Path, part: str) -> tuple[Array, Array, Array]:
    folder = path / part
    signals = [_table(folder / "Inertial Signals" / f"{signal}_{part}.txt", np.float32, 2) for signal in SIGNALS]
    y, subject = (_table(folder / f"{name}_{part}.txt", np.int32, 1) for name in ("y", "subject"))
    shapes = {signal.shape for signal in signals}
    if len(shapes) > 1:
        raise DataError(f"data {folder}: its signals have different shapes, {sorted(shapes)}; download it again")
    return np.stack(signals, axis=1), y, subject


def _table(path: Path, dtype: DTypeLike, rank: Literal[1, 2]) -> Array:
    if not path.is_file():
        raise DataError(f"data {path}: no such file; give the path of the unpacked folder 'UCI HAR Dataset'")
    try:
        return np.loadtxt(path, dtype, ndmin=rank)
    except (ValueError, OSError) as error:
        raise DataError(f"data {path}: cannot be read ({one_line(error)}); download it again") from error


def _sequences(x: Array, subject: Array) -> Indices:
    """Return the index of each window's recording, `[windows]`."""
    half = x.shape[2] // 2
    follows = (x[1:, :, :-half] == x[:-1, :, half:]).all(axis=(1, 2)) & (subject[1:] == subject[:-1])
    return np.concatenate([[0], np.cumsum(~follows)]).astype(np.int64)
