"""Interactions of users with items, for recommenders: leave-one-out with sampled items.

He et al., "Neural Collaborative Filtering", WWW 2017, section 4.1: the last interaction of each user is held out for
the test and the one before for validation, each among sampled items that the user has not interacted with; training
interactions come with sampled items, too.
"""

import numpy as np
from numpy.typing import NDArray

from odt_sim.arguments import names_arguments
from odt_sim.data.columns import Columns
from odt_sim.data.dataset import Dataset
from odt_sim.data.dataset_checks import check
from odt_sim.data.drawn import drawn
from odt_sim.errors import ConfigurationError

_STREAM = 14
_TASTES, _SHARPNESS, _POPULARITY = 6, 2.0, 2.0
TRAIN = 0  # 1 is validation, 2 test


@names_arguments
def recommendations(
    users: int = 30, items: int = 300, interactions: int = 20, negatives: int = 4, candidates: int = 99, seed: int = 0
) -> Dataset:
    """Draw interactions from the tastes of users and the qualities of items, both normal with six dimensions.

    Items are drawn without replacement, with log-probabilities of 2 times the scaled product of both plus the item's
    popularity, which is normal with deviation 2.

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
    generator = drawn(_STREAM, seed, **least, candidates=(candidates, 1), items=(items, 1))
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
    rows = [_rows(own, items, negatives, candidates, generator) for own in taken]
    owners = np.repeat(np.arange(users), [len(own[0]) for own in rows])
    item, y, parts = (np.concatenate(column) for column in zip(*rows, strict=True))
    x = Columns.of({"user": owners, "item": item}, "data recommendations, x")
    return check(Dataset(f"recommendations seed={seed}", x, y.astype(np.float32), owners, parts=parts))


def _rows(
    taken: NDArray[np.int64], items: int, negatives: int, candidates: int, generator: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the items of a user's examples, their targets and their parts; no item is sampled twice."""
    others = generator.permutation(np.setdiff1d(np.arange(items), taken))
    item, y, parts, used = [], [], [], 0
    for place, own in enumerate(taken):
        part = max(TRAIN, place - (len(taken) - 3))
        count = candidates if part else negatives
        item += [own, *others[used : used + count]]
        y += [1] + [0] * count
        parts += [part] * (1 + count)
        used += count
    return np.array(item), np.array(y), np.array(parts)
