"""Where names of points go: as near as there is room, and never over one another or over a point."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_STEP = 8
"""Of the grid of places, in pixels: a quarter of a line's height."""


def places(points: Array, sizes: Array, obstacles: Array, area: Sequence[float], gap: float) -> Array:
    """Returns where labels go, the first ones first served.

    Each takes the free place nearest to its point, of a fine grid over the area.

    Args:
        points: `[labels, 2]`, what they name, in pixels.
        sizes: `[labels, 2]`, their widths and heights.
        obstacles: `[obstacles, 4]`, what they must not cover: left, bottom, right, top.
        area: Left, bottom, right and top of where they may be.
        gap: The least distance between a label and anything else.

    Returns:
        `[labels, 4]`: left, bottom, right and top of each. Where there is no free place at all, that which covers least.
    """
    taken = [*obstacles]
    placed = []
    for point, size in zip(points, sizes, strict=True):
        boxes = _candidates(point, size, area, gap)
        covered = sum((_overlap(boxes, box, gap) for box in taken), np.zeros(len(boxes)))
        best = boxes[np.lexsort((_distance(boxes, point), covered))[0]]
        taken.append(best)
        placed.append(best)
    return np.array(placed).reshape(-1, 4)


def _candidates(point: Array, size: Array, area: Sequence[float], gap: float) -> Array:
    """Returns boxes `[places, 4]` of a label: beside, above and below its point, and all over the area."""
    left, bottom, right, top = area
    width, height = size
    x, y = point
    beside = [(x + 3 * gap, y - height / 2), (x - 3 * gap - width, y - height / 2)]
    over = [(x - width / 2, y + 3 * gap), (x - width / 2, y - 3 * gap - height)]
    columns, rows = np.arange(left, right - width, _STEP), np.arange(bottom, top - height, _STEP)
    grid = np.stack(np.meshgrid(columns, rows), axis=-1).reshape(-1, 2)
    corners = np.concatenate([np.array([*beside, *over]), grid])
    inside = np.all((corners >= (left, bottom)) & (corners + size <= (right, top)), axis=1)
    kept = corners[inside] if inside.any() else np.array([(left, bottom)])
    return np.concatenate([kept, kept + size], axis=1)


def _overlap(boxes: Array, box: Array, gap: float) -> Array:
    """Returns `[places]` the area that each has in common with a box that is `gap` larger on every side."""
    wide = np.minimum(boxes[:, 2], box[2] + gap) - np.maximum(boxes[:, 0], box[0] - gap)
    high = np.minimum(boxes[:, 3], box[3] + gap) - np.maximum(boxes[:, 1], box[1] - gap)
    return np.asarray(np.maximum(wide, 0) * np.maximum(high, 0))


def _distance(boxes: Array, point: Array) -> Array:
    """Returns `[places]` how far a point is from each box."""
    nearest = np.clip(point, boxes[:, :2], boxes[:, 2:])
    return np.asarray(np.hypot(*(nearest - point).T))
