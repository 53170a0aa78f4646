"""A frozen MobileNet without downloaded weights, for `prepare.py`; imports TensorFlow."""

import keras

from odt_sim.export.zoo import mobilenet
from peers.workloads import drawn_images


def normalized_mobilenet(size: int, classes: int, alpha: float) -> keras.Model:
    """Return the zoo's MobileNet with a random frozen body and the batch statistics of the images.

    With the initial statistics, its features would be about 1e-17, and no head could learn.

    Args:
        size: Height and width of the images.
        classes: The number of classes.
        alpha: The factor on the number of filters.
    """
    model = mobilenet([size, size, 3], classes, alpha, frozen=True)
    [body] = [layer for layer in model.layers if isinstance(layer, keras.Model)]
    norms = [layer for layer in body.layers if isinstance(layer, keras.layers.BatchNormalization)]
    body.trainable = True
    momentum = norms[0].momentum
    for norm in norms:
        norm.momentum = 0.0  # one pass sets the statistics
    body(2 * drawn_images(64, size)[0] - 1, training=True)
    for norm in norms:
        norm.momentum = momentum
    body.trainable = False
    return model
