"""Conv2D and its gradients as matrix products.

A product of variable weights is fastest as a BATCH_MATMUL of rank 3, and moving memory costs as much as the products. So
im2col is done along one axis of the kernel only, as few wide copies, and the products add up along the other:
rows(X)[i] holds, for the kernel's row i and each place of the kernel, the elements of X under that row.
With few channels these copies would be tiny: there all elements are stacked on the first axis instead.
"""

import tensorflow as tf

from odt_sim.export.lowering.max_pooling import BeforePooling, following_pooling, pooling_windows
from odt_sim.export.lowering.registry import Memo, Value, lowers
from odt_sim.export.lowering.windows import Windows, dilated, element, every, padded, part, sum_of, windows_of

FEW_CHANNELS = 4
PART = 256  # rows


def _windows(op: tf.Operation, image: tf.TensorShape, kernel: tf.TensorShape) -> Windows:
    return windows_of(op, image, (int(kernel[0]), int(kernel[1])))


def _stacked(x: tf.Tensor, windows: Windows, memo: Memo) -> tf.Tensor:
    """Returns `[1, height * width * channels, batch * rows * columns]`: all elements of the windows, stacked."""
    key = ("stacked", x.ref(), windows)
    if key not in memo:
        image = padded(x, windows)
        channels = tf.split(image, image.shape[3], -1) if image.shape[3] > 1 else [image]
        elements = [element(channel, windows, offset) for offset in windows.offsets for channel in channels]
        memo[key] = tf.concat([tf.reshape(x, [1, 1, -1]) for x in elements], 1)
    return memo[key]


def _rows(x: tf.Tensor, windows: Windows, memo: Memo) -> list[tf.Tensor]:
    """Returns for each row of the kernel `[1, batch * rows * columns, width * channels]`: the elements under that row."""
    key = ("rows", x.ref(), windows)
    if key not in memo:
        image = padded(x, windows)
        (height, width), (count, across), (down, right) = windows.size, windows.count, windows.dilation
        steps = [part(image, columns=every(j * right, across, windows.stride[1])) for j in range(width)]
        joined = tf.concat(steps, -1) if width > 1 else steps[0]
        rows = [part(joined, every(i * down, count, windows.stride[0])) for i in range(height)]
        memo[key] = [_matrix(row) for row in rows]
    return list(memo[key])


def _matrix(x: tf.Tensor) -> tf.Tensor:
    return tf.reshape(x, [1, -1, x.shape[-1]])


@lowers("Conv2D")
def conv2d(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes Y: the sum over the kernel's rows i of rows(X)[i] W[i]."""
    x, kernel = inputs
    windows = _windows(op, x.shape, kernel.shape)
    groups = x.shape[3] // kernel.shape[2]
    if groups > 1:
        pairs = zip(_split(x, groups, memo), tf.split(kernel, groups, -1), strict=True)
        return [tf.concat([_convolved(own, weights, windows, memo) for own, weights in pairs], -1)]
    pooling = following_pooling(op)
    if pooling is None:
        return [_convolved(x, kernel, windows, memo)]
    windows = _used(windows, pooling, op.outputs[0].shape)
    return [BeforePooling(_convolved(x, kernel, windows, memo), pooling)]


def _split(x: tf.Tensor, groups: int, memo: Memo) -> list[tf.Tensor]:
    """Returns an image's channels in `groups` parts, the same tensors whenever asked."""
    key = ("split", x.ref(), groups)
    if key not in memo:
        memo[key] = tf.split(x, groups, -1)
    return list(memo[key])


def _convolved(x: tf.Tensor, kernel: tf.Tensor, windows: Windows, memo: Memo) -> tf.Tensor:
    height, width, channels, filters = kernel.shape
    if channels <= FEW_CHANNELS:
        flat = tf.matmul(_stacked(x, windows, memo), tf.reshape(kernel, [1, -1, filters]), transpose_a=True)
    else:
        weights = tf.reshape(kernel, [height, 1, width * channels, filters])
        flat = sum_of([tf.matmul(row, weights[i]) for i, row in enumerate(_rows(x, windows, memo))])
    return tf.reshape(flat, [x.shape[0], *windows.count, filters])


def _used(windows: Windows, pooling: tf.Operation, image: tf.TensorShape) -> Windows:
    """Returns the windows of a convolution without those whose output no window of the pooling covers."""
    pools = pooling_windows(pooling, image)
    if not pools.tiles:
        return windows
    return windows.first(pools.count[0] * pools.size[0], pools.count[1] * pools.size[1])


@lowers("Conv2DBackpropFilter")
def conv2d_backprop_filter(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes dW: for the kernel's row i, dW[i] = rows(X)[i]^T dY."""
    x, _, gradient = inputs
    kernel = op.outputs[0].shape
    windows = _windows(op, x.shape, kernel).first(*gradient.shape[1:3])
    groups = x.shape[3] // kernel[2]
    if groups == 1:
        return [_filter_gradient(x, gradient, windows, memo)]
    pairs = zip(_split(x, groups, memo), _split(gradient, groups, memo), strict=True)
    return [tf.concat([_filter_gradient(own, of_own, windows, memo) for own, of_own in pairs], -1)]


def _filter_gradient(x: tf.Tensor, gradient: tf.Tensor, windows: Windows, memo: Memo) -> tf.Tensor:
    kernel, matrix = [*windows.size, x.shape[3], gradient.shape[3]], _matrix(gradient)
    if x.shape[3] <= FEW_CHANNELS:
        return tf.reshape(tf.matmul(_stacked(x, windows, memo), matrix), kernel)
    products = [_adjoint_product(row, matrix) for row in _rows(x, windows, memo)]
    return tf.reshape(tf.concat(products, 0), kernel)


def _adjoint_product(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Returns A^T B, `[1, columns of A, columns of B]`, for matrices of many rows: in parts, whose error is smaller.

    The parts have `PART` rows at least, and their products together a quarter of the elements of A and B at most.
    """
    _, rows, left = a.shape
    right = b.shape[2]
    most = min(rows // PART, rows * (left + right) // (4 * left * right))
    parts = next(n for n in range(max(most, 1), 0, -1) if rows % n == 0)
    if parts == 1:
        return tf.matmul(a, b, transpose_a=True)
    a, b = tf.reshape(a, [parts, -1, left]), tf.reshape(b, [parts, -1, right])
    return tf.reduce_sum(tf.matmul(a, b, transpose_a=True), 0, keepdims=True)


@lowers("Conv2DBackpropInput")
def conv2d_backprop_input(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Computes dX: the sum over the kernel's rows i, each i rows further down, of columns(dY) W[i]^T.

    columns(dY) holds for each column of the image the elements of dY whose windows reach it, `width * filters` of them.
    """
    _, kernel, gradient = inputs
    image = op.outputs[0].shape
    windows = _windows(op, image, kernel.shape).first(*gradient.shape[1:3])
    groups = image[3] // kernel.shape[2]
    if groups == 1:
        return [_input_gradient(kernel, gradient, windows)]
    pairs = zip(tf.split(kernel, groups, -1), _split(gradient, groups, memo), strict=True)
    return [tf.concat([_input_gradient(weights, own, windows) for weights, own in pairs], -1)]


def _input_gradient(kernel: tf.Tensor, gradient: tf.Tensor, windows: Windows) -> tf.Tensor:
    height, width, channels, filters = kernel.shape
    columns = _columns(gradient, windows)
    weights = tf.reshape(tf.transpose(kernel, [1, 3, 0, 2]), [1, width * filters, height * channels])
    product = tf.matmul(_matrix(columns), weights)
    product = tf.reshape(product, [*columns.shape[:3], height * channels])
    return _down(product, windows)


def _columns(gradient: tf.Tensor, windows: Windows) -> tf.Tensor:
    """Returns `[batch, rows, width of the image, width of the kernel * filters]`."""
    spread = dilated(gradient, 1, windows.stride[1])
    reach, before, image = (windows.size[1] - 1) * windows.dilation[1], windows.before[1], windows.image[1]
    after = max(before + image - spread.shape[2], 0)
    spread = tf.pad(spread, [[0, 0], [0, 0], [reach, after], [0, 0]]) if reach or after else spread
    starts = [before + reach - j * windows.dilation[1] for j in range(windows.size[1])]
    parts = [part(spread, columns=slice(start, start + image)) for start in starts]
    return tf.concat(parts, -1) if len(parts) > 1 else parts[0]


def _down(product: tf.Tensor, windows: Windows) -> tf.Tensor:
    """Adds up the kernel's rows, each at its height: `[batch, height, width, channels]`."""
    spread = dilated(product, windows.stride[0], 1)
    before, image = windows.before[0], windows.image[0]
    reach = (windows.size[0] - 1) * windows.dilation[0]
    after = max(before + image - spread.shape[1] - reach, 0)
    rows = []
    for i, row in enumerate(tf.split(spread, windows.size[0], -1)):
        down = i * windows.dilation[0]
        rows.append(tf.pad(row, [[0, 0], [down, reach - down + after], [0, 0], [0, 0]]) if reach or after else row)
    return part(sum_of(rows), slice(before, before + image))
