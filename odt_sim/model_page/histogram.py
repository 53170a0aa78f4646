"""The values of a tensor as statistics and as an inline SVG histogram."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

BINS = 32
WIDTH, HEIGHT = 160, 36


@dataclass(frozen=True)
class Values:
    """The values of a tensor.

    Attributes:
        least: The smallest finite value; None if there is none.
        mean: The mean of the finite values.
        greatest: The largest finite value.
        deviation: Their standard deviation.
        not_finite: The number of NaN and infinite values.
        picture: The histogram.
    """

    least: float | None
    mean: float | None
    greatest: float | None
    deviation: float | None
    not_finite: int
    picture: Markup


def values_of(array: NDArray[Any]) -> Values:
    """Return the statistics and the histogram of an array of numbers."""
    flat = np.asarray(array, np.float64).reshape(-1)
    finite = flat[np.isfinite(flat)]
    if not finite.size:
        return Values(None, None, None, None, flat.size, Markup(""))
    least, greatest = float(finite.min()), float(finite.max())
    counts, _ = np.histogram(finite, bins=BINS) if greatest > least else (np.array([finite.size]), None)
    return Values(
        least,
        float(finite.mean()),
        greatest,
        float(finite.std()),
        flat.size - finite.size,
        _picture(counts, least, greatest),
    )


def _picture(counts: NDArray[Any], least: float, greatest: float) -> Markup:
    width, most = WIDTH / len(counts), counts.max()
    if len(counts) == 1:  # one value: a thin bar in the middle
        bars = f'<rect x="{WIDTH / 2 - 2}" y="0" width="4" height="{HEIGHT}"/>'
    else:
        heights = [max(1.0, HEIGHT * count / most) if count else 0.0 for count in counts]
        bars = "".join(
            f'<rect x="{i * width:.1f}" y="{HEIGHT - height:.1f}" width="{width - 0.6:.1f}" height="{height:.1f}"/>'
            for i, height in enumerate(heights)
            if height
        )
    label = f"histogram from {least:.3g} to {greatest:.3g}"
    return Markup(
        f'<svg class="histogram" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="{label}">{bars}</svg>'
    )
