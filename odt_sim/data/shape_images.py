"""Images of disks and squares with pixel-wise classes, for segmentation."""

import numpy as np
from numpy.typing import NDArray

from odt_sim.arguments import names_arguments
from odt_sim.data.dataset import Dataset
from odt_sim.data.dataset_checks import check
from odt_sim.data.drawn import drawn

_STREAM = 11
BACKGROUND, DISK, SQUARE = 0, 1, 2


@names_arguments
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
    generator = drawn(_STREAM, seed, users=(users, 1), examples=(examples, 3), size=(size, 8))
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
