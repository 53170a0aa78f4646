"""Loops, Fourier transforms and further functions of `keras.ops` in user-defined layers."""

from typing import Any

from keras import layers, ops

from parity.case import CLASSES, Case, Family, images, merged, sequences


class Scanned(layers.Layer):  # type: ignore[misc]
    """A recurrent layer with `keras.ops.scan`."""

    def build(self, shape: Any) -> None:
        self.cell = layers.GRUCell(4)
        self.cell.build((shape[0], shape[2]))

    def call(self, x: Any) -> Any:
        def turn(state: Any, step: Any) -> Any:
            output, (state,) = self.cell(step, [state])
            return state, output

        return ops.transpose(ops.scan(turn, ops.zeros_like(x[:, 0]), ops.transpose(x, (1, 0, 2)))[1], (1, 0, 2))


class Repeated(layers.Layer):  # type: ignore[misc]
    """A layer that applies its weights several times, with `keras.ops.fori_loop` and a bounded `while_loop`."""

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], shape[-1]))

    def call(self, x: Any) -> Any:
        x = ops.fori_loop(0, 3, lambda i, v: ops.tanh(v @ self.kernel), x)
        return ops.while_loop(lambda v: ops.max(v) < 4.0, lambda v: (1.4 * v + x,), (x,), maximum_iterations=5)[0]


def functions(x: Any) -> list[Any]:
    """Return functions of a hidden layer."""
    found = [
        lambda x: ops.tan(0.2 * x) + ops.arctan(x) + ops.arctan2(x, 1.0 + ops.square(x)),
        lambda x: ops.sinh(x) + ops.cosh(x) + ops.arcsinh(x),
        lambda x: ops.arcsin(0.9 * ops.tanh(x)) + ops.arccosh(2.0 + ops.relu(x)) + ops.erfinv(0.9 * ops.tanh(x)),
        lambda x: ops.cumprod(x, axis=1) + ops.roll(x, 2, axis=1),
        lambda x: ops.sort(x, axis=1) + ops.top_k(x, 6)[0],
        lambda x: ops.rfft(x)[0],
        lambda x: ops.irfft(tuple(0.5 * part for part in ops.rfft(x))),
        lambda x: ops.triu(ops.einsum("bi,bj->bij", x, x)),
        lambda x: ops.switch(ops.cast(ops.sum(x[:1]) > 0.0, "int32"), [lambda v: v, lambda v: v * v], x),
    ]
    return [layers.Lambda(function)(x) for function in found]


FUNCTIONS = Family(
    "Further functions of `keras.ops` in custom layers (`lowering/keras_calls.py` lists all)",
    "parity/functions.py",
    (
        Case(
            "loops",
            ("scan, fori_loop, while_loop (bounded)",),
            lambda: sequences(Scanned(), Repeated(), length=4),
        ),
        Case(
            "functions",
            (
                "tan, arctan, arctan2, arcsin, erfinv",
                "sinh, cosh, arcsinh, arccosh",
                "cumprod, roll, sort, top_k",
                "rfft, irfft, triu, switch",
            ),
            lambda: merged(functions),
        ),
        Case(
            "functions of images",
            ("pad (reflect), depth_to_space, space_to_depth, extract_patches",),
            lambda: images(
                layers.Lambda(lambda x: ops.pad(x, ((0, 0), (1, 0), (1, 2), (0, 0)), "reflect")[:, :8, :8]),
                layers.Lambda(lambda x: ops.space_to_depth(x, 2)),
                layers.Lambda(lambda x: ops.depth_to_space(x, 2)),
                layers.Lambda(lambda x: ops.image.extract_patches(x, 2)),
            ),
        ),
        Case(
            "further normalization",
            ("SpectralNormalization", "EinsumDense: any equation"),
            lambda: images(
                layers.SpectralNormalization(layers.Conv2D(4, 2)),
                layers.EinsumDense("bhwc,wcd->bhd", output_shape=(7, CLASSES), bias_axes="d"),
            ),
        ),
    ),
)
