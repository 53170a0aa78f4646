"""Layers that move, repeat, merge or map values."""

from functools import partial
from typing import Any

import keras
from keras import layers, ops

from parity.case import Case, Family, images, merged, perceptron, sequences

ACTIVATIONS = """relu relu6 leaky_relu elu selu celu gelu silu softplus softsign tanh sigmoid hard_sigmoid hard_silu
hard_tanh softmax log_softmax log_sigmoid exponential mish tanh_shrink hard_shrink soft_shrink squareplus
sparse_plus sparse_sigmoid threshold glu linear""".split()  # noqa: SIM905
SETTINGS = {"threshold": {"threshold": 0.1, "default_value": 0.2}}


def activated(h: Any) -> list[Any]:
    """Return each activation on a separate dense layer, by the activation's name."""
    functions = {name: partial(getattr(keras.activations, name), **SETTINGS.get(name, {})) for name in ACTIVATIONS}
    return [layers.Lambda(f)(layers.Dense(4, name=f"before_{name}")(h)) for name, f in functions.items()]


def activation_layers(h: Any) -> list[Any]:
    approximate = layers.Activation(lambda x: keras.activations.gelu(x, approximate=True))
    kinds = [layers.ReLU(3.0, negative_slope=0.1, threshold=0.2), layers.LeakyReLU(0.2), layers.ELU(0.5)]
    return [kind(layers.Dense(4)(h)) for kind in [layers.PReLU(), layers.Softmax(), approximate, *kinds]]


def merges(h: Any) -> list[Any]:
    other = layers.Dense(6, activation="tanh")(h)
    kinds = (layers.Add, layers.Subtract, layers.Multiply, layers.Average, layers.Maximum, layers.Minimum)
    return [*(kind()([h, other]) for kind in kinds), layers.Dot(axes=1, normalize=True)([h, other])]


def operations(x: Any) -> list[Any]:
    """Return functions of `keras.ops` on a hidden layer with some zero rows."""
    functions = [
        lambda x: ops.norm(x, axis=-1, keepdims=True) * x,
        lambda x: ops.cumsum(x, -1),
        lambda x: ops.sin(x) * ops.cos(2.0 * x),
        lambda x: ops.logsumexp(x, axis=-1, keepdims=True) * x,
        lambda x: x * ops.floor(x) + ops.round(x),
        lambda x: ops.where(ops.any(x > 1.0, axis=-1, keepdims=True), x, -x),
        lambda x: ops.std(x, axis=-1, keepdims=True) * ops.max(x, axis=-1, keepdims=True),
        lambda x: ops.take(ops.log(x + 1.0) + ops.power(x + 0.5, 1.5), [3, 1, 1], axis=-1),
        lambda x: ops.einsum("bi,bj->bij", x, ops.clip(x, 0.1, 1.0)),
    ]
    h = layers.ReLU()(x)
    return [layers.Lambda(function)(h) for function in functions]


SHAPES = Family(
    "Shapes and merging",
    "parity/shapes.py",
    (
        Case(
            "merging",
            ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate", "Dot"),
            lambda: merged(merges),
        ),
        Case(
            "shapes of vectors",
            ("Reshape", "Flatten", "RepeatVector", "Rescaling"),
            lambda: perceptron(
                layers.Rescaling(0.5, -0.1),
                layers.RepeatVector(3),
                layers.Reshape((2, 12)),
                layers.Flatten(),
                layers.Dense(5),
            ),
        ),
        Case(
            "shapes of sequences",
            ("ZeroPadding1D", "Cropping1D", "UpSampling1D", "Permute"),
            lambda: sequences(
                layers.ZeroPadding1D((0, 2)), layers.Cropping1D((1, 2)), layers.UpSampling1D(2), layers.Permute((2, 1))
            ),
        ),
        Case(
            "shapes of images",
            ("ZeroPadding2D", "UpSampling2D: nearest, bilinear", "Cropping2D", "CenterCrop", "Resizing", "Permute"),
            lambda: images(
                layers.ZeroPadding2D(((0, 1), (2, 0))),
                layers.UpSampling2D((2, 1)),
                layers.Cropping2D(((1, 0), (2, 3))),
                layers.UpSampling2D(2, interpolation="bilinear"),
                layers.CenterCrop(9, 6),
                layers.Resizing(6, 7),
                layers.Permute((3, 1, 2)),
            ),
        ),
    ),
)

OPERATIONS = Family(
    "Functions of `keras.ops` in custom layers",
    "parity/shapes.py",
    (
        Case(
            "operations",
            (
                "norm, std, logsumexp, max, any",
                "cumsum, take, einsum, where, clip, floor, round",
                "sin, cos, log, power",
            ),
            lambda: merged(operations),
        ),
    ),
)

ELEMENTWISE = Family(
    "Activations",
    "parity/shapes.py",
    (
        Case("activations", (*ACTIVATIONS, "hard_silu: hard_swish", "silu: swish"), lambda: merged(activated)),
        Case(
            "activation layers",
            ("PReLU", "ReLU", "LeakyReLU", "ELU", "Softmax", "gelu: exact, approximate"),
            lambda: merged(activation_layers),
        ),
    ),
)
