"""Colors of images between RGB and HSV (hue, saturation, value), all in [0, 1]."""

import tensorflow as tf

from odt_sim.export.lowering.registry import computes


@computes("RGBToHSV")
def rgb_to_hsv(x: tf.Tensor) -> tf.Tensor:
    """Compute V = max, S = (max - min) / max and H = the angle on the color circle, in turns; S and H are 0 for gray."""
    red, green, blue = tf.split(x, 3, -1)
    value = tf.reduce_max(x, -1, keepdims=True)
    span = value - tf.reduce_min(x, -1, keepdims=True)
    zero = tf.zeros_like(span)
    norm = 1.0 / (6.0 * tf.where(span > 0.0, span, tf.ones_like(span)))
    saturation = tf.where(value > 0.0, span / tf.where(value > 0.0, value, tf.ones_like(value)), zero)
    other = tf.where(tf.equal(green, value), (blue - red) * norm + 2.0 / 6.0, (red - green) * norm + 4.0 / 6.0)
    hue = tf.where(span > 0.0, tf.where(tf.equal(red, value), (green - blue) * norm, other), zero)
    return tf.concat([tf.where(hue < 0.0, hue + 1.0, hue), saturation, value], -1)


@computes("HSVToRGB")
def hsv_to_rgb(x: tf.Tensor) -> tf.Tensor:
    """Compute C = ((clip(channel of the pure hue, 0, 1) - 1) S + 1) V."""
    hue, saturation, value = tf.split(x, 3, -1)
    turn = hue * 6.0
    pure = tf.concat([tf.abs(turn - 3.0) - 1.0, 2.0 - tf.abs(turn - 2.0), 2.0 - tf.abs(turn - 4.0)], -1)
    return ((tf.clip_by_value(pure, 0.0, 1.0) - 1.0) * saturation + 1.0) * value
