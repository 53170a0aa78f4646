"""Numbers made of several handwritten digits, for models that transcribe sequences."""

import numpy as np

from odt_sim.arguments import names_arguments
from odt_sim.data.columns import Array, only
from odt_sim.data.dataset import Dataset
from odt_sim.data.dataset_checks import check
from odt_sim.data.drawn import drawn
from odt_sim.data.partition import dirichlet
from odt_sim.data.sources import digits

_STREAM = 16

LONGEST, SHORTEST = 5, 2
"""Maximum and minimum number of digits."""

WIDEST_GAP = 2
"""Maximum number of empty columns between two digits."""

WIDTH = 8 * LONGEST + WIDEST_GAP * (LONGEST - 1)
"""Number of columns of each image; columns after the last digit are empty."""


@names_arguments
def digit_numbers(users: int = 20, examples: int = 60, seed: int = 0) -> Dataset:
    """Return numbers of two to five of scikit-learn's 1,797 handwritten digits, side by side, as users would write them.

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
    random = drawn(_STREAM, seed, users=(users, 1), examples=(examples, 5))
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
