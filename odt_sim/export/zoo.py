"""Small Keras models, for the configurations under `conf/model`."""

from collections.abc import Sequence

import keras
from keras import layers


def softmax_regression(input_shape: Sequence[int], classes: int) -> keras.Model:
    """Return multinomial logistic regression on flattened input; its output is `[batch, classes]` logits."""
    return mlp(input_shape, classes, hidden=())


def linear_regression(input_shape: Sequence[int]) -> keras.Model:
    """Return linear regression with a bias, initially zero; its output is `[batch, 1]`.

    Args:
        input_shape: The shape of one example.
    """
    dense = layers.Dense(1, kernel_initializer="zeros", name="regressor")
    return keras.Sequential(
        [layers.Input(tuple(input_shape)), layers.Flatten(name="flatten"), dense], name="linear_regression"
    )


def mlp(input_shape: Sequence[int], classes: int, hidden: Sequence[int]) -> keras.Model:
    """Return a multilayer perceptron on flattened input; its output is `[batch, classes]` logits.

    Args:
        input_shape: The shape of one example.
        classes: The number of classes.
        hidden: The width of each hidden layer, with ReLU.
    """
    return keras.Sequential(
        [
            layers.Input(tuple(input_shape)),
            layers.Flatten(name="flatten"),
            *(layers.Dense(width, activation="relu", name=f"dense_{i}") for i, width in enumerate(hidden)),
            layers.Dense(classes, name="classifier"),
        ],
        name="mlp" if hidden else "softmax_regression",
    )


def cnn(
    input_shape: Sequence[int], classes: int, filters: Sequence[int], dense: Sequence[int], padding: str = "valid"
) -> keras.Model:
    """Return a convolutional network; its output is `[batch, classes]` logits.

    Args:
        input_shape: Height, width and channels of one example.
        classes: The number of classes.
        filters: The number of filters of each 3x3 convolution, with ReLU and 2x2 max-pooling.
        dense: The width of each hidden dense layer, with ReLU.
        padding: Padding of the convolutions, `same` or `valid`.
    """
    model = keras.Sequential([layers.Input(tuple(input_shape))], name="cnn")
    for i, count in enumerate(filters):
        model.add(layers.Conv2D(count, 3, padding=padding, activation="relu", name=f"conv_{i}"))
        model.add(layers.MaxPooling2D(2, name=f"pool_{i}"))
    model.add(layers.Flatten(name="flatten"))
    for i, width in enumerate(dense):
        model.add(layers.Dense(width, activation="relu", name=f"dense_{i}"))
    model.add(layers.Dense(classes, name="classifier"))
    return model


def resnet8(input_shape: Sequence[int], classes: int, width: int = 16) -> keras.Model:
    """Return the ResNet-8 of MLPerf Tiny: three residual blocks of two 3x3 convolutions, with BatchNormalization.

    Banbury et al., arXiv:2106.07597. Its output is `[batch, classes]` logits.

    Args:
        input_shape: Height, width and channels of one example.
        classes: The number of classes.
        width: The filters of the first block; each further block doubles them and halves height and width.
    """
    x = layers.Input(tuple(input_shape))
    h = layers.ReLU()(_normalized(x, width, 3, 1, "stem"))
    for i in range(3):
        filters, stride = width * 2**i, 1 if i == 0 else 2
        inner = layers.ReLU()(_normalized(h, filters, 3, stride, f"block_{i}_a"))
        inner = _normalized(inner, filters, 3, 1, f"block_{i}_b")
        h = h if i == 0 else _normalized(h, filters, 1, stride, f"block_{i}_shortcut")
        h = layers.ReLU()(layers.Add()([h, inner]))
    h = layers.GlobalAveragePooling2D()(h)
    return keras.Model(x, layers.Dense(classes, name="classifier")(h), name="resnet8")


def _normalized(x: keras.KerasTensor, filters: int, size: int, stride: int, name: str) -> keras.KerasTensor:
    h = layers.Conv2D(filters, size, strides=stride, padding="same", use_bias=False, name=f"{name}_conv")(x)
    return layers.BatchNormalization(momentum=0.9, name=f"{name}_norm")(h)


def mobilenet(
    input_shape: Sequence[int],
    classes: int,
    alpha: float,
    version: int = 1,
    weights: str | None = None,
    frozen: bool = False,
) -> keras.Model:
    """Return Keras' MobileNet, arXiv:1704.04861, or MobileNetV2, arXiv:1801.04381; its output is `[batch, classes]` logits.

    With weights, or if frozen, the model is a `keras.applications` backbone with a new dense head, for images in 0..1.

    Args:
        input_shape: Height, width and channels of one example.
        classes: The number of classes.
        alpha: The factor for the number of filters.
        version: 1 or 2.
        weights: A weight file as downloaded by `keras.applications`, without the top layers, with a name that ends in
            `_no_top.h5`; None initializes new weights.
        frozen: Whether only the head is trained; BatchNormalization then keeps its statistics.
    """
    kind = {1: keras.applications.MobileNet, 2: keras.applications.MobileNetV2}[version]
    if weights is None and not frozen:
        settings = {"alpha": alpha, "classes": classes, "classifier_activation": None, "weights": None}
        return kind(input_shape=tuple(input_shape), **settings)
    backbone = kind(input_shape=tuple(input_shape), alpha=alpha, include_top=False, pooling="avg", weights=weights)
    backbone.trainable = not frozen
    x = layers.Input(tuple(input_shape))
    features = backbone(layers.Rescaling(2.0, -1.0)(x))
    return keras.Model(x, layers.Dense(classes, name="classifier")(features), name=f"{backbone.name}_transfer")


def character_lstm(
    length: int, characters: int, embedding: int, units: int, every_position: bool = True
) -> keras.Model:
    """Return an LSTM that predicts the next character; its output is `[batch, length, characters]` logits.

    Args:
        length: The number of characters in one example.
        characters: The size of the alphabet.
        embedding: The width of a character's embedding.
        units: The number of LSTM units.
        every_position: Whether it predicts at each position; otherwise only after the last one, `[batch, characters]`.
    """
    x = layers.Input((length,), dtype="int32")
    h = layers.Embedding(characters, embedding, name="embedding")(x)
    h = layers.LSTM(units, return_sequences=every_position, name="lstm")(h)
    return keras.Model(x, layers.Dense(characters, name="classifier")(h), name="character_lstm")


def character_window(length: int, characters: int, window: int, embedding: int, units: int) -> keras.Model:
    """Return a perceptron that predicts the next character from the last few; its output is logits.

    Bengio et al., "A Neural Probabilistic Language Model", JMLR 2003, with characters instead of words.

    Args:
        length: The number of characters in one example.
        characters: The size of the alphabet.
        window: The number of characters at the end of an example that the model reads.
        embedding: The width of a character's embedding.
        units: The number of hidden units.
    """
    x = layers.Input((length,), dtype="int32")
    h = layers.Embedding(characters, embedding, name="embedding")(x[:, length - window :])
    h = layers.Dense(units, activation="relu", name="dense")(layers.Flatten()(h))
    return keras.Model(x, layers.Dense(characters, name="classifier")(h), name="character_window")


def transformer_encoder(
    length: int, words: int, classes: int, width: int, heads: int, blocks: int, dropout: float = 0.1
) -> keras.Model:
    """Return a transformer encoder that classifies word sequences, arXiv:1706.03762; its output is logits.

    Args:
        length: The number of words in one example.
        words: The size of the vocabulary.
        classes: The number of classes.
        width: The width of a word's embedding; a multiple of `heads`.
        heads: The number of heads in each attention layer.
        blocks: The number of blocks.
        dropout: The dropout rate in each block.
    """
    x = layers.Input((length,), dtype="int32")
    h = layers.Embedding(words, width, name="embedding")(x)
    h = layers.EinsumDense("btw,tw->btw", output_shape=(length, width), name="place")(h)
    for i in range(blocks):
        attended = layers.MultiHeadAttention(heads, width // heads, name=f"attention_{i}")(h, h)
        h = layers.LayerNormalization(name=f"norm_{i}_a")(layers.Add()([h, layers.Dropout(dropout)(attended)]))
        inner = layers.Dense(2 * width, activation="gelu", name=f"dense_{i}_a")(h)
        inner = layers.Dropout(dropout)(layers.Dense(width, name=f"dense_{i}_b")(inner))
        h = layers.LayerNormalization(name=f"norm_{i}_b")(layers.Add()([h, inner]))
    h = layers.GlobalAveragePooling1D()(h)
    return keras.Model(x, layers.Dense(classes, name="classifier")(h), name="transformer_encoder")


def cnn_1d(channels: int, length: int, classes: int, filters: Sequence[int]) -> keras.Model:
    """Return a convolutional network on signals `[channels, length]`; its output is `[batch, classes]` logits.

    Args:
        channels: The number of signals in one example, such as nine for an accelerometer and a gyroscope.
        length: The number of samples per signal.
        classes: The number of classes.
        filters: The number of filters of each convolution over 5 samples, with ReLU and max-pooling by 2.
    """
    model = keras.Sequential([layers.Input((channels, length)), layers.Permute((2, 1))], name="cnn_1d")
    for i, count in enumerate(filters):
        model.add(layers.Conv1D(count, 5, padding="same", activation="relu", name=f"conv_{i}"))
        model.add(layers.MaxPooling1D(2, name=f"pool_{i}"))
    model.add(layers.GlobalAveragePooling1D())
    model.add(layers.Dense(classes, name="classifier"))
    return model


def unet(input_shape: Sequence[int], classes: int, filters: Sequence[int]) -> keras.Model:
    """Return a U-Net, arXiv:1505.04597, that classifies pixels; its output is `[batch, height, width, classes]` logits.

    Args:
        input_shape: Height, width and channels of one example; height and width are multiples of 2^(levels - 1).
        classes: The number of classes.
        filters: The number of filters at each level, from the full size down; each further level halves height and
            width.
    """
    x = h = layers.Input(tuple(input_shape))
    skipped = []
    for i, count in enumerate(filters[:-1]):
        h = layers.Conv2D(count, 3, padding="same", activation="relu", name=f"down_{i}")(h)
        skipped.append(h)
        h = layers.MaxPooling2D(2, name=f"pool_{i}")(h)
    h = layers.Conv2D(filters[-1], 3, padding="same", activation="relu", name="bottom")(h)
    for i, skip in reversed(list(enumerate(skipped))):
        h = layers.Conv2DTranspose(filters[i], 2, strides=2, activation="relu", name=f"up_{i}")(h)
        h = layers.Concatenate(name=f"skip_{i}")([h, skip])
        h = layers.Conv2D(filters[i], 3, padding="same", activation="relu", name=f"merge_{i}")(h)
    return keras.Model(x, layers.Conv2D(classes, 1, name="classifier")(h), name="unet")


def word_tagger(length: int, words: int, tags: int, embedding: int, units: int) -> keras.Model:
    """Return a GRU that tags each word; its output is `[batch, length, tags]` logits with a mask for padding.

    With as many tags as words, it is a language model: the tag is the next word.

    Args:
        length: The number of words in one example, padded with trailing zeros.
        words: The size of the vocabulary, including padding.
        tags: The number of tags.
        embedding: The width of a word's embedding.
        units: The number of GRU units, in each direction for a tagger.
    """
    x = layers.Input((length,), dtype="int32")
    h = layers.Embedding(words, embedding, mask_zero=True, name="embedding")(x)
    gru = layers.GRU(units, return_sequences=True, name="gru")
    h = gru(h) if tags == words else layers.Bidirectional(gru, name="gru_both_ways")(h)
    return keras.Model(
        x, layers.Dense(tags, name="classifier")(h), name="next_word" if tags == words else "word_tagger"
    )


def recommender(users: int, items: int, width: int, hidden: Sequence[int]) -> keras.Model:
    """Return neural collaborative filtering, arXiv:1708.05031: a score for a user and an item, `[batch, 1]` logits.

    Args:
        users: The number of users.
        items: The number of items.
        width: The width of an embedding.
        hidden: The width of each hidden layer, with ReLU, on both embeddings.
    """
    user, item = layers.Input((), dtype="int32", name="user"), layers.Input((), dtype="int32", name="item")
    embedded = [
        layers.Embedding(users, width, name="user_embedding")(user),
        layers.Embedding(items, width, name="item_embedding")(item),
    ]
    h = layers.Concatenate()(embedded)
    for i, count in enumerate(hidden):
        h = layers.Dense(count, activation="relu", name=f"dense_{i}")(h)
    product = layers.Multiply()(embedded)
    score = layers.Dense(1, name="score")(layers.Concatenate()([product, h]))
    return keras.Model({"user": user, "item": item}, score, name="recommender")


def ds_cnn(input_shape: Sequence[int], classes: int, filters: int, blocks: int) -> keras.Model:
    """Return a DS-CNN for keyword spotting, arXiv:1711.07128: depthwise separable convolutions; its output is logits.

    Args:
        input_shape: Frames, coefficients and channels of one example, such as `[49, 10, 1]` for a second of speech.
        classes: The number of words.
        filters: The number of filters of each convolution.
        blocks: The number of separable convolutions.
    """
    x = layers.Input(tuple(input_shape))
    h = layers.Conv2D(filters, (10, 4), strides=2, padding="same", use_bias=False, name="stem")(x)
    h = layers.ReLU()(layers.BatchNormalization(momentum=0.9, name="stem_norm")(h))
    for i in range(blocks):
        h = layers.DepthwiseConv2D(3, padding="same", use_bias=False, name=f"depthwise_{i}")(h)
        h = layers.ReLU()(layers.BatchNormalization(momentum=0.9, name=f"depthwise_norm_{i}")(h))
        h = layers.Conv2D(filters, 1, use_bias=False, name=f"pointwise_{i}")(h)
        h = layers.ReLU()(layers.BatchNormalization(momentum=0.9, name=f"pointwise_norm_{i}")(h))
    return keras.Model(x, layers.Dense(classes, name="classifier")(layers.GlobalAveragePooling2D()(h)), name="ds_cnn")


def transcriber(
    frames: int, features: int, labels: int, classes: int, filters: Sequence[int]
) -> tuple[keras.Model, tuple[keras.KerasTensor, keras.KerasTensor]]:
    """Return a convolutional network on sequences for the loss `ctc`, and an example of its inputs and targets.

    Its output is `[batch, frames / 2, classes]` logits, where class 0 is the blank.

    Args:
        frames: The number of frames in one example, such as the columns of a line of handwriting.
        features: The number of features in a frame.
        labels: The largest number of labels of an example.
        classes: The number of classes, including the blank.
        filters: The number of filters of each convolution over 5 frames, with ReLU; the second one halves the number of
            frames.
    """
    x = h = layers.Input((frames, features))
    for i, count in enumerate(filters):
        h = layers.Conv1D(count, 5, strides=2 if i == 1 else 1, padding="same", activation="relu", name=f"conv_{i}")(h)
    model = keras.Model(x, layers.Dense(classes, name="classifier")(h), name="transcriber")
    return model, (x, layers.Input((labels,), dtype="int32"))
