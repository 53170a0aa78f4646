"""Images from before their padding with zeros."""

import tensorflow as tf

from odt_sim.export.lowering.registry import Memo


def keep_before_padding(padded: tf.Tensor, x: tf.Tensor, pads: list[list[int]], memo: Memo) -> None:
    """Memoize an image whose rows and columns are padded with zeros.

    Args:
        padded: The padded image.
        x: The image before padding.
        pads: The number of zeros before and after the image, by axis.
        memo: Values shared between lowerings.
    """
    if len(pads) == 4 and pads[0] == pads[3] == [0, 0]:
        memo["before padding", padded.ref()] = x, (pads[1][0], pads[2][0])


def before_padding(padded: tf.Tensor, memo: Memo) -> tuple[tf.Tensor, tuple[int, int]]:
    """Return an image from before its padding, and the position of its first row and column in the padded image."""
    found: tuple[tf.Tensor, tuple[int, int]] = memo.get(("before padding", padded.ref()), (padded, (0, 0)))
    return found
