"""After five steps LiteRT and Keras hold the same weights, for models of one family of layers each."""

from collections.abc import Callable
from typing import Any

import keras
import pytest
from keras import layers

CLASSES = 5


def images(*body: Any, shape: tuple[int, ...] = (8, 7, 2)) -> Any:
    """Returns a classifier of images; a first convolution makes the gradient of every layer's input needed."""
    first = layers.Conv2D(6, 3, padding="same", activation="relu", name="first")
    return keras.Sequential([layers.Input(shape), first, *body, layers.Flatten(), layers.Dense(CLASSES)])


def sequences(*body: Any) -> Any:
    first = layers.Dense(4, name="first")
    return keras.Sequential([layers.Input((9, 3)), first, *body, layers.Flatten(), layers.Dense(CLASSES)])


def merged(parts: Callable[[Any], list[Any]]) -> Any:
    """Returns a classifier of what `parts` makes of a hidden layer, side by side."""
    x = layers.Input((6,))
    h = layers.Dense(6, name="first")(x)
    return keras.Model(x, layers.Dense(CLASSES)(layers.Concatenate()(parts(h))))


def merges(h: Any) -> list[Any]:
    other = layers.Dense(6, activation="tanh")(h)
    kinds = (layers.Add, layers.Subtract, layers.Multiply, layers.Average, layers.Maximum, layers.Minimum)
    return [kind()([h, other]) for kind in kinds]


ACTIVATIONS = """relu relu6 leaky_relu elu selu celu gelu silu softplus softsign tanh sigmoid hard_sigmoid hard_silu
hard_tanh softmax log_softmax log_sigmoid exponential mish tanh_shrink hard_shrink soft_shrink squareplus
sparse_plus""".split()  # noqa: SIM905


def activated(h: Any) -> list[Any]:
    """Returns each activation behind a layer of its own, which names it where it differs."""
    approximate = layers.Dense(3, activation=lambda x: keras.activations.gelu(x, approximate=True))(h)
    kinds = [layers.PReLU()(h), layers.ReLU(3.0, negative_slope=0.1, threshold=0.2)(h), layers.Softmax()(h)]
    return [*(layers.Dense(3, activation=name, name=f"before_{name}")(h) for name in ACTIVATIONS), approximate, *kinds]


def characters(*, each: bool) -> Any:
    """Returns a model that says the next character: at each position, or behind all that are not 0."""
    x = layers.Input((5,), dtype="int32")
    h = layers.LSTM(4, return_sequences=each)(layers.Embedding(6, 3, mask_zero=not each)(x))
    return keras.Model(x, layers.Dense(6)(h))


def encoder() -> Any:
    """Returns a transformer's encoder block, and two simpler ways to attend."""
    x = layers.Input((6, 8))
    h = layers.Dense(8, name="first")(x)
    attended = layers.MultiHeadAttention(2, 4, use_bias=False)(h, h, use_causal_mask=True)
    h = layers.LayerNormalization()(layers.Add()([h, attended]))
    h = layers.Concatenate()([h, layers.Attention(use_scale=True)([h, h]), layers.AdditiveAttention()([h, h])])
    return keras.Model(x, layers.Dense(CLASSES)(layers.GlobalAveragePooling1D()(h)))


MODELS: dict[str, Callable[[], Any]] = {
    "one axis": lambda: sequences(
        layers.Conv1D(6, 3, strides=2, padding="same"),
        layers.Conv1D(5, 2, dilation_rate=2, padding="causal"),
        layers.MaxPooling1D(2, strides=1),
        layers.AveragePooling1D(3, strides=2, padding="same"),
        layers.ZeroPadding1D(1),
        layers.Conv1DTranspose(4, 3, strides=2),
    ),
    "global max-pooling of a sequence": lambda: sequences(layers.GlobalMaxPooling1D()),
    "global average-pooling of a sequence": lambda: sequences(layers.GlobalAveragePooling1D()),
    "transposed convolutions": lambda: images(
        layers.Conv2DTranspose(5, 3, strides=2, padding="same"),
        layers.ZeroPadding2D((1, 2)),
        layers.Conv2DTranspose(6, 2, strides=(1, 3)),
        layers.GlobalMaxPooling2D(),
    ),
    "depthwise and separable convolutions": lambda: images(
        layers.DepthwiseConv2D(3, depth_multiplier=2, activation="relu"),
        layers.SeparableConv2D(5, 3, padding="same"),
        layers.DepthwiseConv2D(2, strides=2, padding="same"),
    ),
    "separable convolution of a sequence": lambda: sequences(
        layers.SeparableConv1D(5, 3, strides=2), layers.DepthwiseConv1D(2)
    ),
    "grouped convolutions": lambda: images(
        layers.Conv2D(8, 3, groups=2, activation="relu"),
        layers.MaxPooling2D(2),
        layers.Conv2D(4, 2, groups=4, padding="same"),
    ),
    "grouped convolution of a sequence": lambda: sequences(layers.Conv1D(6, 3, groups=2)),
    "batch normalization": lambda: images(
        layers.BatchNormalization(),
        layers.Activation("tanh"),
        layers.Conv2D(4, 3, strides=2, use_bias=False),
        layers.BatchNormalization(momentum=0.9, scale=False),
        layers.ReLU(),
        layers.Flatten(),
        layers.Dense(6, use_bias=False),
        layers.BatchNormalization(center=False),
    ),
    "batch normalization along other axes": lambda: sequences(
        layers.BatchNormalization(axis=1), layers.Conv1D(3, 2, use_bias=False), layers.BatchNormalization()
    ),
    "recurrent layers": lambda: sequences(
        layers.SimpleRNN(4, return_sequences=True),
        layers.Bidirectional(layers.LSTM(3, return_sequences=True)),
        layers.GRU(4, go_backwards=True, reset_after=False),
    ),
    "GRU": lambda: sequences(layers.GRU(4, return_sequences=True)),
    "a loss at each position": lambda: characters(each=True),
    "masked positions": lambda: characters(each=False),
    "attention": encoder,
    "normalizations": lambda: images(
        layers.LayerNormalization(axis=(1, 2)),
        layers.GroupNormalization(2),
        layers.RMSNormalization(),
        layers.UnitNormalization(),
    ),
    "merging": lambda: merged(merges),
    "activations": lambda: merged(activated),
    "einsum, shared over time": lambda: sequences(
        layers.EinsumDense("abc,cd->abd", output_shape=(9, 5), bias_axes="d"),
        layers.EinsumDense("abc,bcd->abd", output_shape=(9, 4)),
        layers.TimeDistributed(layers.Dense(3)),
    ),
    "padding, cropping, upsampling of a sequence": lambda: sequences(
        layers.ZeroPadding1D((0, 2)), layers.Cropping1D((1, 2)), layers.UpSampling1D(2), layers.Permute((2, 1))
    ),
    "padding, cropping, upsampling of images": lambda: images(
        layers.ZeroPadding2D(((0, 1), (2, 0))),
        layers.UpSampling2D((2, 1)),
        layers.Cropping2D(((1, 0), (2, 3))),
        layers.UpSampling2D(2, interpolation="bilinear"),
        layers.CenterCrop(9, 6),
        layers.Permute((3, 1, 2)),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_layers_train_as_in_keras(name: str, twins: Any) -> None:
    keras.utils.set_random_seed(4)
    model = MODELS[name]()
    twins(model).agree()
    assert not any(getattr(layer, "unroll", False) for layer in model.layers)
