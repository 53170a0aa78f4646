"""Sentences in a synthetic language, for taggers and language models.

The class of a word depends on the class of the previous word (a Markov chain that all users share), and a word is drawn
from its class. A few words belong to two classes, which only their neighbours disambiguate. Users differ in their
preferred words. Sentences differ in length and are padded with 0 at the end.
"""

import numpy as np
from numpy.typing import NDArray

from odt_sim.arguments import names_arguments
from odt_sim.data.dataset import Dataset
from odt_sim.data.dataset_checks import check
from odt_sim.data.drawn import drawn

_STREAM = 12
TAGS, OWN = 4, 6  # the number of classes, and of words that belong to only one class
SHARED = 4  # words that belong to both class i and class i + 1
WORDS = 1 + TAGS * (OWN + SHARED)
"""The size of the vocabulary, padding included."""


@names_arguments
def tagged_sentences(users: int = 20, examples: int = 40, length: int = 10, seed: int = 0) -> Dataset:
    """Draw sentences with the class of each word, for a tagger.

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


@names_arguments
def next_words(users: int = 20, examples: int = 40, length: int = 10, seed: int = 0) -> Dataset:
    """Draw sentences with the next word at each position, for a language model.

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
    generator = drawn(_STREAM, seed, users=(users, 1), examples=(examples, 3), length=(length, 4))
    follows = generator.dirichlet(np.full(TAGS, 0.3), TAGS)
    owners = np.repeat(np.arange(users), examples)
    tags = np.zeros((len(owners), length), np.int64)
    tags[:, 0] = generator.integers(0, TAGS, len(owners))
    for place in range(1, length):
        chances = follows[tags[:, place - 1]].cumsum(axis=1)
        tags[:, place] = np.minimum((generator.random((len(owners), 1)) > chances).sum(axis=1), TAGS - 1)
    words = np.zeros_like(tags)
    taste = generator.dirichlet(np.full(OWN + 2 * SHARED, 0.5), (users, TAGS))
    chances = taste[owners[:, np.newaxis], tags].cumsum(axis=-1)
    drawn_words = np.minimum((generator.random((*tags.shape, 1)) > chances).sum(axis=-1), OWN + 2 * SHARED - 1)
    words = 1 + (tags * (OWN + SHARED) + drawn_words) % (
        TAGS * (OWN + SHARED)
    )  # the last words belong to the next class, too
    lengths = generator.integers(3, length + 1, len(owners))
    return np.where(np.arange(length) < lengths[:, np.newaxis], words, 0), tags, owners
