"""The inputs and outputs of a file's signatures, with types that every LiteRT runtime accepts.

LiteRT.js refuses a file in which any signature has an input or output of a type other than float32, int32 or uint8.
Inside the graph, types stay as traced: a step count, for example, is an int64 variable that crosses the border as int32.

READ_VARIABLE resizes a scalar when it runs. LiteRT's CompiledModel, and therefore LiteRT.js, then returns memory other
than the result. So an additional op returns each scalar variable.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from odt_sim.export.tracing import Function, unordered

PASSED = (tf.int32, tf.uint8)


def bordered(function: Callable[..., dict[str, tf.Tensor]], arguments: Sequence[tf.TensorSpec]) -> Function:
    """Return the graph of a function with named arguments; integers except uint8, and booleans, cross as int32."""
    inner = {spec.name: spec.dtype for spec in arguments}

    def cast(**values: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = function(**{name: tf.cast(value, inner[name]) for name, value in values.items()})
        return {name: _returned(output) for name, output in outputs.items()}

    return unordered(cast, [tf.TensorSpec(spec.shape, passed(spec.dtype), spec.name) for spec in arguments])


def passed(dtype: tf.DType) -> tf.DType:
    """Return the type that represents a type at the border."""
    return tf.int32 if (dtype.is_integer or dtype.is_bool) and dtype not in PASSED else dtype


def _returned(output: tf.Tensor) -> tf.Tensor:
    if output.shape.rank == 0 and _is_variable(output):
        output = tf.gather(tf.reshape(output, [1]), 0)  # the converter removes simpler copies
    return tf.cast(output, passed(output.dtype))


def _is_variable(tensor: tf.Tensor) -> bool:
    op = tensor.op
    while op.type == "Identity":
        op = op.inputs[0].op
    return bool(op.type == "ReadVariableOp")
