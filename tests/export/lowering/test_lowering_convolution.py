"""Conv2D and its gradients against TensorFlow, over a grid of shapes."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

RANDOM = np.random.default_rng(0)


def whole(*shape: int) -> Any:
    """Return integers: their products and sums are exact in float32, so both results must be equal bit for bit."""
    return RANDOM.integers(-4, 5, size=shape).astype(np.float32)


@pytest.mark.parametrize("channels", [3, 6])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(
    ("kernel", "strides", "dilations"),
    [
        ((1, 1), 1, 1),
        ((3, 3), 1, 1),
        ((2, 3), 1, 1),
        ((5, 1), 1, 1),
        ((3, 3), 2, 1),
        ((2, 2), 3, 1),
        ((1, 2), (3, 2), 1),
        ((3, 2), 1, 2),
    ],
)
def test_convolution_and_gradients_equal_tensorflow(
    channels: int, padding: str, kernel: tuple[int, int], strides: Any, dilations: Any, same: Any
) -> None:
    def function(x: Any, w: Any, weight: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = tf.nn.conv2d(x, w, strides, padding, dilations=dilations)
            total = tf.reduce_sum(y * weight[: y.shape[0], : y.shape[1], : y.shape[2]])
        dx, dw = tape.gradient(total, [x, w])
        return {"y": y, "dx": dx, "dw": dw}

    same(function, atol=0, x=whole(2, 8, 7, channels), w=whole(*kernel, channels, 4), weight=whole(2, 8, 7, 4))


@pytest.mark.parametrize(("size", "channels", "filters"), [((18, 16), 6, 8), ((17, 19), 3, 40), ((40, 36), 2, 5)])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolution_of_larger_images_equals_tensorflow(
    size: tuple[int, int], channels: int, filters: int, stride: int, same: Any
) -> None:
    """Blocks of four, two and one columns, rows sliced before and after products, and sums in parts."""

    def function(x: Any, w: Any, weight: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = tf.nn.conv2d(x, w, stride, "SAME")
            total = tf.reduce_sum(y * weight[:, : y.shape[1], : y.shape[2]])
        dx, dw = tape.gradient(total, [x, w])
        return {"y": y, "dx": dx, "dw": dw}

    same(
        function, atol=0, x=whole(2, *size, channels), w=whole(3, 3, channels, filters), weight=whole(2, *size, filters)
    )


@pytest.mark.parametrize("size", [(4, 5), (16, 17)])
def test_dilation_can_span_the_image(size: tuple[int, int], same: Any) -> None:
    def function(x: Any, w: Any, weight: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            total = tf.reduce_sum(tf.nn.conv2d(x, w, 1, "SAME", dilations=size) * weight)
        return dict(zip(("dx", "dw"), tape.gradient(total, [x, w]), strict=True))

    same(function, atol=0, x=whole(2, *size, 3), w=whole(3, 3, 3, 4), weight=whole(2, *size, 4))


@pytest.mark.parametrize("multiplier", [1, 2])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"), [((3, 3), 1, 1), ((2, 3), 2, 1), ((3, 2), 3, 1), ((2, 2), 1, 2), ((1, 1), 2, 1)]
)
def test_depthwise_convolution_and_gradients_equal_tensorflow(
    multiplier: int, padding: str, kernel: tuple[int, int], stride: int, dilation: int, same: Any
) -> None:
    def function(x: Any, w: Any, weight: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = tf.nn.depthwise_conv2d(x, w, [1, stride, stride, 1], padding, dilations=[dilation, dilation])
            total = tf.reduce_sum(y * weight[:, : y.shape[1], : y.shape[2]])
        dx, dw = tape.gradient(total, [x, w])
        return {"y": y, "dx": dx, "dw": dw}

    x, w, weight = whole(2, 8, 7, 3), whole(*kernel, 3, multiplier), whole(2, 8, 7, 3 * multiplier)
    same(function, atol=0, x=x, w=w, weight=weight)


@pytest.mark.parametrize("multiplier", [1, 2])
@pytest.mark.parametrize(("stride", "padding"), [(1, "VALID"), (2, "VALID"), (3, "VALID"), (2, "SAME")])
@pytest.mark.parametrize("pads", [((0, 1), (0, 1)), ((1, 1), (2, 0)), ((4, 0), (0, 3))], ids=str)
def test_depthwise_convolution_of_padded_images_equals_tensorflow(
    multiplier: int, stride: int, padding: str, pads: Any, same: Any
) -> None:
    def function(x: Any, w: Any, weight: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = tf.nn.depthwise_conv2d(tf.pad(x, [(0, 0), *pads, (0, 0)]), w, [1, stride, stride, 1], padding)
            total = tf.reduce_sum(y * weight[:, : y.shape[1], : y.shape[2]])
        dx, dw = tape.gradient(total, [x, w])
        return {"y": y, "dx": dx, "dw": dw}

    x, w, weight = whole(2, 8, 7, 3), whole(3, 3, 3, multiplier), whole(2, 12, 10, 3 * multiplier)
    same(function, atol=0, x=x, w=w, weight=weight)


@pytest.mark.parametrize("shape", [(9, 8), (5, 6)])
@pytest.mark.parametrize("channels", [1, 6])
@pytest.mark.parametrize(("bias", "relu"), [(True, True), (True, False), (False, True), (False, False)])
def test_moving_bias_and_relu_behind_pooling_is_exact(
    shape: tuple[int, int], channels: int, bias: bool, relu: bool, same: Any
) -> None:
    def function(x: Any, w: Any, b: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch([x, w, b])
            y = tf.nn.conv2d(x, w, 1, "VALID")
            y = tf.nn.bias_add(y, b) if bias else y
            y = tf.nn.relu(y) if relu else y
            y = tf.nn.max_pool2d(y, 2, 2, "VALID")
            total = tf.reduce_sum(y * y)
        gradients = dict(zip(("dx", "dw", "db"), tape.gradient(total, [x, w, b]), strict=True))
        return {"y": y, **{name: value for name, value in gradients.items() if value is not None}}

    x = whole(2, *shape, channels)
    x[:, :4, :4] = 0.0  # equal patches: their maxima tie
    same(function, atol=0, x=x, w=whole(2, 2, channels, 3), b=whole(3))


@pytest.mark.parametrize("size", [(9, 8), (8, 9), (9, 9)])
@pytest.mark.parametrize("channels", [1, 6])
def test_convolution_of_single_pixels_behind_which_a_pooling_leaves_a_rest(
    size: tuple[int, int], channels: int, same: Any
) -> None:
    def function(x: Any, w: Any, weight: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = tf.nn.max_pool2d(tf.nn.conv2d(x, w, 1, "VALID"), 2, 2, "VALID")
            total = tf.reduce_sum(y * weight)
        return {"y": y, **dict(zip(("dx", "dw"), tape.gradient(total, [x, w]), strict=True))}

    same(function, atol=0, x=whole(8, *size, channels), w=whole(1, 1, channels, 3), weight=whole(8, 4, 4, 3))


@pytest.mark.parametrize("kernel", [(3, 3), (2, 5)])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("pool", [(2, 2), (3, 3), (1, 2)])
def test_pooled_convolution_of_grey_images_equals_tensorflow(
    kernel: tuple[int, int], padding: str, pool: tuple[int, int], same: Any
) -> None:
    def function(x: Any, w: Any, weight: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = tf.nn.max_pool2d(tf.nn.conv2d(x, w, 1, padding), pool, pool, "VALID")
            total = tf.reduce_sum(y * y * weight)
        dx, dw = tape.gradient(total, [x, w])
        return {"y": y, "dx": dx, "dw": dw}

    same(function, atol=0, x=whole(2, 11, 13, 1), w=whole(*kernel, 1, 3), weight=whole(3))
