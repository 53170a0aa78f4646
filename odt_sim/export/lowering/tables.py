"""Look-up tables of numbers, such as the table of an IntegerLookup."""

import numpy as np
import tensorflow as tf

from odt_sim.export.lowering.registry import Memo, Refusal, Value, lowers


@lowers("LookupTableFindV2")
def find(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = default + sum((values - default) [keys = X]) with the table's keys and values as constants."""
    table, x, default = inputs
    types = {"Tkeys": op.inputs[1].dtype, "Tvalues": op.outputs[0].dtype}
    strings = next((kind.name for kind in types.values() if not kind.is_integer), None)
    if strings:
        raise Refusal(
            f"looks up a {strings}; look it up in the data, before the model, and pass the numbers to the model"
        )
    with tf.init_scope():
        keys, values = (t.numpy().astype(np.int32) for t in tf.raw_ops.LookupTableExportV2(table_handle=table, **types))
    x, default = tf.cast(x, tf.int32), tf.cast(default, tf.int32)
    found = tf.cast(tf.equal(x[..., tf.newaxis], keys), tf.int32)
    return [tf.cast(default + tf.reduce_sum(found * (values - default), -1), op.outputs[0].dtype)]
