"""The JSON folders of LEAF: FEMNIST, Shakespeare and Sent140, split by user as they come.

Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018. A file holds `users` and, for each user,
`user_data[user] = {"x": [...], "y": [...]}`.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from odt_sim.data.dataset import Array, Dataset
from odt_sim.data.dataset_checks import check
from odt_sim.errors import DataError

CHARACTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The 80 characters of LEAF's Shakespeare; a character's number is its place."""

PADDING, UNKNOWN = 0, 1
"""The numbers of what fills a short text up, and of a word outside the vocabulary."""

_TEXT = 4  # where the text of a tweet stands in its record: id, date, query, user, text, ...


class _Examples(NamedTuple):
    x: list[Any]
    y: list[Any]
    users: list[str]


def femnist(path: str | os.PathLike[str]) -> Dataset:
    """Reads handwritten digits and letters; a user is a writer.

    Args:
        path: A folder with LEAF's `.json` files, or with the folders `train` and `test` of such, which are joined.

    Returns:
        `x` `[examples, 28, 28, 1]` float32 in 0..1, where white is 1; `y` `[examples]` int32 in 0..61.

    Raises:
        DataError: There is no such file, one is damaged, or it holds something else.
    """
    return _dataset("femnist", path, _pictures, _whole_numbers, 62)


def shakespeare(path: str | os.PathLike[str]) -> Dataset:
    """Reads the lines of Shakespeare's roles; a user is a role, and its examples overlap: split them by block.

    Args:
        path: As for `femnist`.

    Returns:
        `x` `[examples, 80]` int32, characters as their place in `CHARACTERS`; `y` `[examples]` the next character.

    Raises:
        DataError: There is no such file, one is damaged, or it holds something else.
    """
    return _dataset("shakespeare", path, _characters, lambda y: _characters(y)[:, 0], len(CHARACTERS))


def sent140(path: str | os.PathLike[str], words: int = 1000, length: int = 32) -> Dataset:
    """Reads tweets and whether they are positive; a user is a tweeter.

    The vocabulary is that of the most frequent words of all users; texts are cut, or filled up behind.

    Args:
        path: As for `femnist`.
        words: How many numbers words have, those of padding and of unknown words among them.
        length: How many words a text has.

    Returns:
        `x` `[examples, length]` int32 in 0..words-1; `y` `[examples]` 1 where the tweet is positive, else 0.

    Raises:
        DataError: There is no such file, one is damaged, or it holds something else.
    """
    if words < 3 or length < 1:
        raise DataError(f"data sent140: words is {words} and length {length}, expected at least 3 and 1")
    return _dataset("sent140", path, partial(_tweets, words=words, length=length), _whole_numbers, 2)


def _dataset(
    name: str,
    path: str | os.PathLike[str],
    inputs: Callable[[list[Any]], Array],
    targets: Callable[[list[Any]], Array],
    classes: int,
) -> Dataset:
    folder = Path(path).expanduser()
    examples = _read(folder)
    try:
        x, y = inputs(examples.x), targets(examples.y)
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise DataError(f"data {folder}: holds no {name} as LEAF writes it ({error}); choose another data") from error
    return check(Dataset(name, x, y, np.array(examples.users), classes))


def _read(folder: Path) -> _Examples:
    """Returns all examples in the order of the files, those of each file user by user."""
    parts = [folder / part for part in ("train", "test") if (folder / part).is_dir()]
    files = [file for part in parts or [folder] for file in sorted(part.glob("*.json"))]
    if not files:
        raise DataError(f"data {folder}: has no .json files; give the folder that LEAF's preprocess.sh wrote them to")
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
        raise DataError(f"data {file}: is no file of LEAF ({type(error).__name__}: {error}); write it again") from error
    return users  # type: ignore[no-any-return]


def _pictures(x: list[Any]) -> Array:
    return np.array(x, np.float32).reshape(-1, 28, 28, 1)


def _whole_numbers(y: list[Any]) -> Array:
    return np.array([int(label) for label in y], np.int32)


def _characters(texts: list[Any]) -> Array:
    numbers = {character: number for number, character in enumerate(CHARACTERS)}
    if unknown := {*"".join(texts)} - set(numbers):
        raise ValueError(f"the character {min(unknown)!r} is none of LEAF's {len(CHARACTERS)}")
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
