"""Small networks with several inputs or outputs."""

import keras
from keras import layers, ops


def recommender() -> keras.Model:
    """Return the logits of 4 ratings of an item (of 6) by a user (of 5)."""
    user, item = (layers.Input((), dtype="int32", name=name) for name in ("user", "item"))
    vectors = [layers.Embedding(5, 3, name="users")(user), layers.Embedding(6, 2, name="items")(item)]
    return keras.Model([user, item], layers.Dense(4, name="rating")(layers.Concatenate()(vectors)), name="recommender")


def heads() -> keras.Model:
    """Return the logits of 3 kinds and a size from 6 features."""
    x = layers.Input((6,), name="features")
    hidden = layers.Dense(5, name="hidden")(x)
    outputs = {"kind": layers.Dense(3, name="kind")(hidden), "size": layers.Dense(1, name="size")(hidden)}
    return keras.Model(x, outputs, name="heads")


def distance(y_true, y_pred):
    """Return the distance of the expected rating from the rating."""
    ratings = ops.sum(ops.softmax(y_pred) * ops.arange(4.0), axis=-1)
    return ops.abs(ratings - ops.cast(y_true, "float32"))
