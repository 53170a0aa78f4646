"""Published data sets with natural users, read from your copy: LEAF, UCI HAR and School.

- LEAF's JSON folders of FEMNIST, Shakespeare and Sent140: Caldas et al., "LEAF: A Benchmark for Federated Settings",
  2018. A file contains `users` and, for each user, `user_data[user] = {"x": [...], "y": [...]}`.
- UCI Human Activity Recognition Using Smartphones, nine inertial signals of 30 people in six activities: Anguita et al.,
  "A Public Domain Dataset for Human Activity Recognition Using Smartphones", ESANN 2013. Windows of 128 samples at 50 Hz
  (2.56 s) overlap by half, so adjacent windows share 64 samples: split them by block.
- ILEA School, exam scores of 15,362 students of 139 schools with 28 features each: Bakker and Heskes, "Task Clustering
  and Gating for Bayesian Multitask Learning", JMLR 2003; used as a personalization benchmark in Wu et al., "Motley:
  Benchmarking Heterogeneity and Personalization in Federated Learning", 2022.
"""

import json
import os
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from odt_sim._support.text import one_line
from odt_sim.data.checks.dataset_checks import check
from odt_sim.data.dataset import Array, Dataset, Indices
from odt_sim.data.sources.builtin import read_npz
from odt_sim.data.store.columns import only
from odt_sim.errors import DataError

CHARACTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The 80 characters of LEAF's Shakespeare data; a character is encoded as its index."""

SYMBOLS = string.digits + string.ascii_uppercase + string.ascii_lowercase
"""The 62 classes of LEAF's FEMNIST data."""

PADDING, UNKNOWN = 0, 1
"""Codes of padding and of words outside the vocabulary."""

_TEXT = 4  # the index of a tweet's text in its record: id, date, query, user, text, ...


class _Examples(NamedTuple):
    x: list[Any]
    y: list[Any]
    users: list[str]


def femnist(path: str | os.PathLike[str]) -> Dataset:
    """Read handwritten digits and letters; a user is a writer.

    Args:
        path: A folder with LEAF's `.json` files, or with folders `train` and `test` of such files, which are merged.

    Returns:
        `x` `[examples, 28, 28, 1]` float32 in 0..1, where white is 1; `y` `[examples]` int32 in 0..61.

    Raises:
        DataError: A file is missing, damaged, or from another data set.
    """
    return _dataset(
        "femnist", path, lambda x: np.array(x, np.float32).reshape(-1, 28, 28, 1), _whole_numbers, 62, SYMBOLS
    )


def shakespeare(path: str | os.PathLike[str]) -> Dataset:
    """Read the lines of Shakespeare's roles; a user is a role. Examples overlap: use `split.method=block`.

    Args:
        path: See `femnist`.

    Returns:
        `x` `[examples, 80]` int32, characters as their index in `CHARACTERS`; `y` `[examples]` the next character.

    Raises:
        DataError: A file is missing, damaged, or from another data set.
    """
    return _dataset("shakespeare", path, _characters, lambda y: _characters(y)[:, 0], len(CHARACTERS))


def sent140(path: str | os.PathLike[str], words: int = 1000, length: int = 32) -> Dataset:
    """Read tweets with their sentiment; a user is an account.

    The vocabulary is the most frequent words of all users; texts are truncated or padded at the end.

    Args:
        path: See `femnist`.
        words: The size of the vocabulary, including padding and unknown words.
        length: The number of words in a text.

    Returns:
        `x` `[examples, length]` int32 in 0..words-1; `y` `[examples]` 1 for a positive tweet, else 0.

    Raises:
        DataError: A file is missing, damaged, or from another data set.
    """
    if words < 3 or length < 1:
        raise DataError(f"data sent140: expected words of at least 3 and length of at least 1, found {words}, {length}")
    return _dataset("sent140", path, partial(_tweets, words=words, length=length), _whole_numbers, 2)


def _dataset(
    name: str,
    path: str | os.PathLike[str],
    inputs: Callable[[list[Any]], Array],
    targets: Callable[[list[Any]], Array],
    classes: int,
    names: Iterable[str] = (),
) -> Dataset:
    folder = Path(path).expanduser()
    examples = _read(folder)
    try:
        x, y = inputs(examples.x), targets(examples.y)
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise DataError(
            f"data {folder}: does not contain LEAF's {name} ({error}); give the folder of this data set"
        ) from error
    return check(Dataset(name, x, y, np.array(examples.users), classes, class_names=tuple(names)))


def _read(folder: Path) -> _Examples:
    """Return all examples in the order of the files, grouped by user within a file."""
    parts = [folder / part for part in ("train", "test") if (folder / part).is_dir()]
    files = [file for part in parts or [folder] for file in sorted(part.glob("*.json"))]
    if not files:
        raise DataError(f"data {folder}: has no .json files; give the output folder of LEAF's preprocess.sh")
    examples = _Examples([], [], [])
    for file in files:
        for user, data in _user_data(file).items():
            examples.x.extend(data["x"])
            examples.y.extend(data["y"])
            examples.users.extend([user] * len(data["x"]))
    return examples


def _user_data(file: Path) -> Mapping[str, Mapping[str, Sequence[Any]]]:
    try:
        users = json.loads(file.read_bytes())["user_data"]
        for user, data in users.items():
            if len(data["x"]) != len(data["y"]):
                raise ValueError(f"user {user} has {len(data['x'])} x and {len(data['y'])} y")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"data {file}: is not a LEAF file ({type(error).__name__}: {error}); write it again") from error
    return users  # type: ignore[no-any-return]


def _whole_numbers(y: list[Any]) -> Array:
    return np.array([int(label) for label in y], np.int32)


def _characters(texts: list[Any]) -> Array:
    numbers = {character: number for number, character in enumerate(CHARACTERS)}
    if unknown := {*"".join(texts)} - set(numbers):
        raise ValueError(f"{min(unknown)!r} is not one of LEAF's {len(CHARACTERS)} characters")
    return np.array([[numbers[character] for character in text] for text in texts], np.int32)


def _tweets(records: list[Any], words: int, length: int) -> Array:
    texts = [re.findall(r"[\w']+|[.,!?;]", record[_TEXT])[:length] for record in records]
    counts = Counter(word for text in texts for word in text)
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[: words - 2]
    numbers = {word: number for number, word in enumerate(frequent, UNKNOWN + 1)}
    x = np.full((len(texts), length), PADDING, np.int32)
    for row, text in zip(x, texts, strict=True):
        row[: len(text)] = [numbers.get(word, UNKNOWN) for word in text]
    return x


SIGNALS = tuple(f"{kind}_{axis}" for kind in ("body_acc", "body_gyro", "total_acc") for axis in "xyz")
ACTIVITIES = ("walking", "walking upstairs", "walking downstairs", "sitting", "standing", "laying")


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
    if path.is_dir():
        parts = [_part(path, part) for part in ("train", "test")]
        x, y, subject = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        y = y - 1  # activities are numbered from 1 in the files
    else:
        x, y, subject = read_npz(path, ["x", "y", "subject"]).values()
    dataset = check(Dataset("uci_har", x, y, subject, len(ACTIVITIES), class_names=ACTIVITIES))
    if x.ndim != 3 or x.shape[1] != len(SIGNALS):
        raise DataError(f"data {path}: x has shape {list(x.shape)}, expected [windows, 9, samples]")
    windows = only(dataset.x, f"data {path}: x", "give one")
    return check(replace(dataset, x=windows, sequences=_sequences(windows, subject)))


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


LOWEST_SCORE, HIGHEST_SCORE = 1, 70


def school(path: str | os.PathLike[str]) -> Dataset:
    """Read the School data; each school is a user.

    Scores are scaled from 1..70 to 0..1. Each school later standardizes features by its own training examples.

    Args:
        path: An `.npz` file with `x` `[students, features]`, `y` `[students]` scores and `school` `[students]` integers.

    Returns:
        `x` `[students, features]` float32, `y` `[students]` float32 in 0..1.

    Raises:
        DataError: The file is missing, damaged, lacks an array, or a score is not in 1..70.
    """
    arrays = read_npz(path, ["x", "y", "school"])
    x, y = arrays["x"].astype(np.float32), arrays["y"].astype(np.float32)
    raw = check(Dataset("school", x, y, arrays["school"], standardize=True))
    if y.min() < LOWEST_SCORE or y.max() > HIGHEST_SCORE:
        raise DataError(
            f"data {path}: scores y range over {y.min():g}..{y.max():g}, expected {LOWEST_SCORE}..{HIGHEST_SCORE}; "
            "use the published scores"
        )
    return replace(raw, y=(y - LOWEST_SCORE) / (HIGHEST_SCORE - LOWEST_SCORE))
