"""Traces run by TensorFlow."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from odt_sim.export.lowering import Trace
from odt_sim.export.lowering.ops.creation import copied
from odt_sim.export.self_check.side import Array, Arrays
from odt_sim.export.trace.tracing import named


def run_trace(trace: Trace, inputs: Arrays, outputs: Mapping[str, tf.Tensor]) -> dict[str, Array]:
    """Return the values of some of a trace's tensors, by name, reading and writing variables in the order of its ops.

    A trace itself does not order reads and writes.
    """
    graph = trace.concrete.graph
    captured = {placeholder.op.name: outer for outer, placeholder in graph.captures}

    def function(**values: tf.Tensor) -> dict[str, tf.Tensor]:
        tensors = dict[str, tf.Tensor]()
        for op in graph.get_operations():
            if op.type == "Placeholder":
                outer = captured.get(op.name)
                copies = [values[trace.arguments[op.name].name] if outer is None else outer]
            else:
                copies = copied(op, [tensors[t.name] for t in op.inputs])
            tensors.update(zip((t.name for t in op.outputs), copies, strict=True))
        return {name: tensors[tensor.name] for name, tensor in outputs.items()}

    constants = {spec.name: tf.constant(inputs[spec.name], spec.dtype) for spec in trace.arguments.values()}
    concrete = named(function, [tf.TensorSpec(value.shape, value.dtype, name) for name, value in constants.items()])
    return {name: np.asarray(value) for name, value in concrete(**constants).items()}
