"""Computing the products of all iterations of an unrolled loop at once."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from odt_sim.export.lowering import Trace, emit

TURNS = 4
SHAPES = {"x": (TURNS, 2, 3), "kernel": (3, 5), "recurrent": (5, 5)}


def _recurrent(x: Any, kernel: Any, recurrent: Any, *, masked: bool = False) -> dict[str, Any]:
    with tf.GradientTape() as tape:
        tape.watch([x, kernel, recurrent])
        h, outputs = tf.zeros([2, 5]), []
        for turn, part in enumerate(tf.unstack(x)):
            new = tf.sin(tf.matmul(part, kernel) + tf.matmul(h, recurrent))
            h = tf.where([[turn != 1], [True]], new, h) if masked else new
            outputs.append(h)
        y = tf.stack(outputs)
        total = tf.reduce_sum(y * y * y)
    return {"y": y, **dict(zip(("dx", "dk", "dr"), tape.gradient(total, [x, kernel, recurrent]), strict=True))}


def _arrays() -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


@pytest.mark.parametrize("masked", [False, True])
def test_loop_and_its_gradient_equal_tensorflow(same: Any, masked: bool) -> None:
    same(lambda x, kernel, recurrent: _recurrent(x, kernel, recurrent, masked=masked), atol=1e-5, **_arrays())


def test_products_that_need_no_other_turn_are_computed_at_once() -> None:
    specs = [tf.TensorSpec(shape, name=name) for name, shape in SHAPES.items()]
    function = tf.function(lambda *given: _recurrent(*given), input_signature=specs, autograph=False)
    trace = Trace(function.get_concrete_function(), layers=())
    with tf.Graph().as_default() as graph:
        inputs = {spec.name: tf.constant(0.5, shape=spec.shape) for spec in specs}
        emit(trace, trace.live_operations(weights=()), inputs, {})
    products = Counter(op.type for op in graph.get_operations())["BatchMatMulV2"]
    states, gradients_of_states = TURNS, TURNS - 1
    inputs_and_gradients_of_inputs_and_kernels = 4
    assert products == states + gradients_of_states + inputs_and_gradients_of_inputs_and_kernels


def test_kernels_of_single_turns_stay_apart(same: Any) -> None:
    def function(x: Any, kernel: Any, recurrent: Any) -> dict[str, Any]:
        first, second, *others = tf.unstack(x)
        return {"y": tf.stack([tf.matmul(first, kernel), tf.matmul(second, 2.0 * kernel)]), "z": tf.add_n(others)}

    same(function, **_arrays())
