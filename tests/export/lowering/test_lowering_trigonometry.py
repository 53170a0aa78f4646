"""Sines, cosines and tangents of large numbers in LiteRT, against float64."""

from typing import Any

import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from odt_sim.export.emit.convert import convert
from odt_sim.export.emit.signatures import Program, emit_signatures
from odt_sim.export.lowering import Trace

LARGEST = 1e4


def _values_and_slopes(x: Any) -> dict[str, Any]:
    outputs = {}
    for name, function in {"sin": tf.sin, "cos": tf.cos, "tan": tf.tan}.items():
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        outputs |= {name: y, f"slope of {name}": tape.gradient(y, x)}
    return {name.replace(" ", "_"): value for name, value in outputs.items()}


def test_large_arguments_are_as_precise_as_small_ones() -> None:
    random = np.random.default_rng(0)
    x = np.concatenate([random.uniform(-size, size, 4000) for size in (1.0, 10.0, 1000.0, LARGEST)]).astype(np.float32)
    function = tf.function(_values_and_slopes, input_signature=[tf.TensorSpec(x.shape, name="x")], autograph=False)
    program = Program({"values": Trace(function.get_concrete_function(), layers=())}, [])
    found = Interpreter(model_content=convert(emit_signatures(program))).get_signature_runner("values")(x=x)
    exact = x.astype(np.float64)
    sine, cosine, tangent = np.sin(exact), np.cos(exact), np.tan(exact)
    for name, expected in {"sin": sine, "slope_of_sin": cosine, "cos": cosine, "slope_of_cos": -sine}.items():
        np.testing.assert_allclose(found[name], expected, rtol=0.0, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(found["tan"], tangent, rtol=1e-6)
    np.testing.assert_allclose(found["slope_of_tan"] ** -0.5, np.abs(cosine), rtol=0.0, atol=1e-6)  # 1 / cos^2
