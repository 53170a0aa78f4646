"""Demo data sets: small and drawn from a seed, or made from the bundled digits, so that each task has data offline.

Users differ, so that personalization matters; use `partition=by_user fleet.devices=null`. The first argument of `drawn`
separates the random numbers of data sets.
"""

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.checks.dataset_checks import check
from odt_sim.data.dataset import Dataset
from odt_sim.data.devices.partition import dirichlet
from odt_sim.data.sources.builtin import digits
from odt_sim.data.sources.fedprox_synthetic import drawn
from odt_sim.data.store.columns import Array, Columns, only
from odt_sim.errors import ConfigurationError

BACKGROUND, DISK, SQUARE = 0, 1, 2


def shapes(users: int = 20, examples: int = 30, size: int = 16, seed: int = 0) -> Dataset:
    """Draw images of one disk and one square in noise; users differ in brightness, contrast and the sizes of their shapes.

    For a third of the users the disk is brighter than the square, for the others darker.

    Args:
        users: The number of users.
        examples: The number of images per user.
        size: Height and width, at least 8.
        seed: The seed of the data.

    Returns:
        `x` `[images, size, size, 1]` float32, `y` `[images, size, size]` int32: 0 background, 1 disk, 2 square.

    Raises:
        ConfigurationError: A setting is out of range.
    """
    generator = drawn(11, seed, users=(users, 1), examples=(examples, 3), size=(size, 8))
    images, labels = [], []
    for _ in range(users):
        light, contrast = generator.uniform(-0.2, 0.2), generator.uniform(0.6, 1.2)
        bright = (1.0, 0.5) if generator.random() < 1 / 3 else (0.5, 1.0)
        radius = generator.uniform(0.14, 0.22) * size
        for _ in range(examples):
            label = _scene(size, radius * generator.uniform(0.8, 1.2), generator)
            levels = light + contrast * np.array([0.0, *bright])
            images.append(levels[label] + generator.normal(0, 0.15, label.shape))
            labels.append(label)
    owners = np.repeat(np.arange(users), examples)
    x, y = np.array(images, np.float32)[..., np.newaxis], np.array(labels, np.int32)
    return check(Dataset(f"shapes seed={seed}", x, y, owners, 3))


def _scene(size: int, radius: float, generator: np.random.Generator) -> NDArray[np.int64]:
    """Return the class of each pixel of a disk drawn over a square, both at random positions inside the image."""
    places = np.indices((size, size))
    (row, column), (top, left) = generator.uniform(radius, size - radius, (2, 2))
    label = np.full((size, size), BACKGROUND)
    label[np.maximum(abs(places[0] - top), abs(places[1] - left)) <= 0.85 * radius] = SQUARE
    label[(places[0] - row) ** 2 + (places[1] - column) ** 2 <= radius**2] = DISK
    return label


TAGS, EXCLUSIVE = 4, 6  # the number of classes, and of words that belong to only one class
SHARED = 4  # words that belong to both class i and class i + 1
WORDS = 1 + TAGS * (EXCLUSIVE + SHARED)
"""The size of the vocabulary of the sentences, padding included."""


def tagged_sentences(users: int = 20, examples: int = 40, length: int = 10, seed: int = 0) -> Dataset:
    """Draw sentences in a synthetic language with the class of each word, for a tagger.

    The class of a word depends on the class of the previous word, by a Markov chain that all users share, and a word is
    drawn from its class. A few words belong to two classes, which only their neighbours disambiguate. Users differ in
    their preferred words. Sentences differ in length and are padded with 0 at the end.

    Args:
        users: The number of users.
        examples: The number of sentences per user.
        length: The longest sentence, at least 4; shorter ones are padded with 0.
        seed: The seed of the data.

    Returns:
        `x` `[sentences, length]` int32 in 0..40, `y` `[sentences, length]` int32 in 0..3, 0 where `x` is padding.

    Raises:
        ConfigurationError: A setting is out of range.
    """
    words, tags, owners = _sentences(users, examples, length, seed)
    return check(Dataset(f"tagged_sentences seed={seed}", words, np.where(words > 0, tags, 0), owners, TAGS))


def next_words(users: int = 20, examples: int = 40, length: int = 10, seed: int = 0) -> Dataset:
    """Draw the sentences of `tagged_sentences` with the next word at each position, for a language model.

    Args:
        users: The number of users.
        examples: The number of sentences per user.
        length: The longest input, at least 4; shorter ones are padded with 0.
        seed: The seed of the data.

    Returns:
        `x` `[sentences, length]` int32 in 0..40, `y` the same one word later, 0 where there is none.

    Raises:
        ConfigurationError: A setting is out of range.
    """
    words, _, owners = _sentences(users, examples, length + 1, seed)
    x = np.where(words[:, 1:] > 0, words[:, :-1], 0)  # the last word has no next word
    return check(Dataset(f"next_words seed={seed}", x, words[:, 1:], owners, WORDS))


def _sentences(
    users: int, examples: int, length: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return words `[sentences, length]` from 1 with 0 as padding, their classes, and the user of each sentence."""
    generator = drawn(12, seed, users=(users, 1), examples=(examples, 3), length=(length, 4))
    follows = generator.dirichlet(np.full(TAGS, 0.3), TAGS)
    owners = np.repeat(np.arange(users), examples)
    tags = np.zeros((len(owners), length), np.int64)
    tags[:, 0] = generator.integers(0, TAGS, len(owners))
    for place in range(1, length):
        chances = follows[tags[:, place - 1]].cumsum(axis=1)
        tags[:, place] = np.minimum((generator.random((len(owners), 1)) > chances).sum(axis=1), TAGS - 1)
    words = np.zeros_like(tags)
    taste = generator.dirichlet(np.full(EXCLUSIVE + 2 * SHARED, 0.5), (users, TAGS))
    chances = taste[owners[:, np.newaxis], tags].cumsum(axis=-1)
    drawn_words = np.minimum((generator.random((*tags.shape, 1)) > chances).sum(axis=-1), EXCLUSIVE + 2 * SHARED - 1)
    # The last words of a class belong to the next class, too.
    words = 1 + (tags * (EXCLUSIVE + SHARED) + drawn_words) % (WORDS - 1)
    lengths = generator.integers(3, length + 1, len(owners))
    return np.where(np.arange(length) < lengths[:, np.newaxis], words, 0), tags, owners


def arm(users: int = 20, examples: int = 40, seed: int = 0) -> Dataset:
    """Draw poses of an arm with the position of its hand; users differ in arm lengths and movements.

    With the joints' angles a and b, an upper arm of length u and a forearm of length f, the hand is at

        (u cos a + f cos(a + b), u sin a + f sin(a + b)),   u, f ~ N(1, 0.15),

    measured with a noise of 0.02. A user's angles are normal around a user's own means.

    Args:
        users: The number of users.
        examples: The number of poses per user.
        seed: The seed of the data.

    Returns:
        `x` `[poses, 2]` float32, the angles in radians, `y` `[poses, 2]` float32, across and up.

    Raises:
        ConfigurationError: A setting is out of range.
    """
    generator = drawn(13, seed, users=(users, 1), examples=(examples, 3))
    owners = np.repeat(np.arange(users), examples)
    upper, fore = (np.abs(generator.normal(1, 0.15, users))[owners] for _ in range(2))
    means = generator.uniform([0.2, 0.3], [1.2, 1.3], (users, 2))
    x = means[owners] + generator.normal(0, 0.5, (len(owners), 2))
    first, both = x[:, 0], x.sum(axis=1)
    y = np.stack([upper * np.cos(first) + fore * np.cos(both), upper * np.sin(first) + fore * np.sin(both)], axis=1)
    return check(Dataset(f"arm seed={seed}", x, y + generator.normal(0, 0.02, y.shape), owners))


_TASTES, _SHARPNESS, _POPULARITY = 6, 2.0, 2.0


def recommendations(
    users: int = 30, items: int = 300, interactions: int = 20, negatives: int = 4, candidates: int = 99, seed: int = 0
) -> Dataset:
    """Draw interactions from the tastes of users and the qualities of items, both normal with six dimensions.

    Items are drawn without replacement, with log-probabilities of 2 times the scaled product of both plus the item's
    popularity, which is normal with deviation 2. As in He et al., "Neural Collaborative Filtering", WWW 2017, section
    4.1, the last interaction of each user is held out for the test and the one before for validation, each among sampled
    items that the user has not interacted with; training interactions come with sampled items, too.

    Args:
        users: The number of users.
        items: The number of items; no item is sampled twice for a user.
        interactions: The number of items that each user chooses, at least 3.
        negatives: The number of sampled items for each training interaction.
        candidates: The number of sampled items in addition to the held-out one, in validation and test.
        seed: The seed of the data.

    Returns:
        `x` with `user` and `item` `[examples]` int32, `y` `[examples]` float32, 1 for an interaction; `parts` holds out the
        last two interactions. Use `split.method=given` and `partition=by_user`.

    Raises:
        ConfigurationError: A setting is out of range.
    """
    least = {"users": (users, 1), "interactions": (interactions, 3), "negatives": (negatives, 0)}
    generator = drawn(14, seed, **least, candidates=(candidates, 1), items=(items, 1))
    least_items = interactions + (interactions - 2) * negatives + 2 * candidates
    if items < least_items:
        raise ConfigurationError(
            f"data.items: expected at least {least_items}, so that enough can be sampled, found {items}; use more "
            "items, or fewer negatives or candidates"
        )
    tastes, qualities = generator.normal(size=(users, _TASTES)), generator.normal(size=(items, _TASTES))
    popular = generator.normal(0, _POPULARITY, items)
    likings = popular + _SHARPNESS * tastes @ qualities.T / np.sqrt(_TASTES)
    gumbel = generator.gumbel(size=likings.shape)  # sorting by likings + Gumbel noise samples without replacement
    taken = np.argsort(-(likings + gumbel), axis=1)[:, :interactions]
    taken = generator.permuted(taken, axis=1)
    rows = [_rows(items_of_user, items, negatives, candidates, generator) for items_of_user in taken]
    owners = np.repeat(np.arange(users), [len(columns[0]) for columns in rows])
    item, y, parts = (np.concatenate(column) for column in zip(*rows, strict=True))
    x = Columns.of({"user": owners, "item": item}, "data recommendations, x")
    return check(Dataset(f"recommendations seed={seed}", x, y.astype(np.float32), owners, parts=parts))


def _rows(
    taken: NDArray[np.int64], items: int, negatives: int, candidates: int, generator: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the items of a user's examples, their targets and their parts; no item is sampled twice."""
    others = generator.permutation(np.setdiff1d(np.arange(items), taken))
    item, y, parts, used = [], [], [], 0
    for place, chosen in enumerate(taken):
        part = max(0, place - (len(taken) - 3))  # training, validation or test
        count = candidates if part else negatives
        item += [chosen, *others[used : used + count]]
        y += [1] + [0] * count
        parts += [part] * (1 + count)
        used += count
    return np.array(item), np.array(y), np.array(parts)


PROPERTIES = {
    "even": (0, 2, 4, 6, 8),
    "prime": (2, 3, 5, 7),
    "above four": (5, 6, 7, 8, 9),
    "with a closed loop": (0, 4, 6, 8, 9),
}
"""The digits with each property, in the order of the labels."""


def digit_properties(users: int = 20, seed: int = 0) -> Dataset:
    """Return the 1,797 bundled handwritten digits with four labels each: even, prime, above four, with a closed loop.

    The digits have no writer ids, so the users are synthetic: each prefers some digits, by a Dirichlet distribution of
    concentration 1, and has at least ten images.

    Args:
        users: The number of users.
        seed: The seed of the users' digits.

    Returns:
        `x` `[1797, 8, 8, 1]` float32 in 0..1, `y` `[1797, 4]` float32, 1 where the property of `PROPERTIES` holds.

    Raises:
        ConfigurationError: A setting is out of range.
        DataError: There are too many users.
    """
    drawn(15, seed, users=(users, 1))
    bunch = digits()
    written = only(bunch.y, "digits", "")
    owners = np.empty(len(written), np.int64)
    for user, images in enumerate(dirichlet(bunch, users, seed, alpha=1.0)):
        owners[images] = user
    y = np.array([np.isin(written, members) for members in PROPERTIES.values()], np.float32).T
    return check(Dataset(f"digit_properties seed={seed}", bunch.x, y, owners))


LONGEST, SHORTEST = 5, 2
"""Maximum and minimum number of digits."""

WIDEST_GAP = 2
"""Maximum number of empty columns between two digits."""

WIDTH = 8 * LONGEST + WIDEST_GAP * (LONGEST - 1)
"""Number of columns of each image; columns after the last digit are empty."""


def digit_numbers(users: int = 20, examples: int = 60, seed: int = 0) -> Dataset:
    """Return numbers of two to five of the 1,797 bundled handwritten digits, side by side, as users would write them.

    The digits have no writer ids, so the users are synthetic: each prefers some digits, by a Dirichlet distribution of
    concentration 1, and has at least ten images. Of these, 60% are in numbers for training only, 20% in those for
    validation and 20% in those for testing.

    Args:
        users: The number of users.
        examples: The number of numbers per user, in these proportions.
        seed: The seed of the numbers.

    Returns:
        `x` `[numbers, 48, 8]` float32 in 0..1, the columns of an image from left to right; `y` `[numbers, 5]` int32, each
        digit plus 1, with zeros behind the last one, as the loss `ctc` takes them; 11 classes with the blank; `parts`, for
        `split.method=given`.

    Raises:
        ConfigurationError: A setting is out of range.
        DataError: There are too many users.
    """
    random = drawn(16, seed, users=(users, 1), examples=(examples, 5))
    bunch = digits()
    columns = np.swapaxes(only(bunch.x, "digits", "")[..., 0], 1, 2)
    labels = only(bunch.y, "digits", "") + 1
    x, y, owners, parts = list[Array](), list[Array](), list[int](), list[int]()
    for user, images in enumerate(dirichlet(bunch, users, seed, alpha=1.0)):
        shares = np.array_split(random.permutation(images), 5), np.array_split(np.arange(examples), 5)
        for part, fifths in enumerate((slice(0, 3), slice(3, 4), slice(4, 5))):
            own, numbers = (np.concatenate(share[fifths]) for share in shares)
            for _ in numbers:
                chosen = random.choice(own, random.integers(SHORTEST, LONGEST + 1))
                x.append(_side_by_side(columns[chosen], random))
                y.append(np.pad(labels[chosen], (0, LONGEST - len(chosen))))
                owners.append(user)
                parts.append(part)
    arrays = np.array(x), np.array(y), np.array(owners)
    return check(Dataset(f"digit_numbers seed={seed}", *arrays, classes=11, parts=np.array(parts)))


def _side_by_side(digits: Array, random: np.random.Generator) -> Array:
    """Join images `[digits, columns, rows]` into one, `[WIDTH, rows]`, with gaps of random widths."""
    whole, place = np.zeros((WIDTH, digits.shape[2]), np.float32), 0
    for digit in digits:
        whole[place : place + len(digit)] = digit
        place += len(digit) + int(random.integers(WIDEST_GAP + 1))
    return whole
