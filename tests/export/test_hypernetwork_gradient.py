"""The gradient of pFedHN's network against TensorFlow's."""

import numpy as np
import tensorflow as tf
from numpy.testing import assert_allclose

from odt_sim.strategies.clusters.pfedhn import Hypernetwork, Layer


def test_gradient_is_that_of_tensorflow() -> None:
    random = np.random.default_rng(5)
    drawn = Hypernetwork.drawn(3, 6, 2, random.normal(size=9).astype(np.float32))
    output = Layer(random.normal(size=(6, 9)).astype(np.float32), drawn.layers[-1].bias)
    network = Hypernetwork([*drawn.layers[:-1], output])
    embeddings, slopes = (random.normal(size=(4, size)).astype(np.float32) for size in (3, 9))
    variables = [[tf.Variable(array) for array in layer] for layer in network.layers]
    given = tf.Variable(embeddings)
    with tf.GradientTape() as tape:
        x = given
        for i, (kernel, bias) in enumerate(variables):
            x = x @ kernel + bias
            x = tf.nn.relu(x) if i < len(variables) - 2 else x
    expected = tape.gradient(x, [given, *(v for pair in variables for v in pair)], output_gradients=slopes)
    assert_allclose(network.weights(embeddings), x, rtol=1e-5, atol=1e-6)
    layers, of_embeddings = network.gradient(embeddings, slopes)
    for found, known in zip([of_embeddings, *(array for layer in layers for array in layer)], expected, strict=True):
        assert_allclose(found, known, rtol=1e-5, atol=1e-5)
