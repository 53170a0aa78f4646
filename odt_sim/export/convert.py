"""Convert emitted signatures to the bytes of a `.tflite` file."""

import tempfile
from collections import defaultdict

import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.signatures import Signatures
from odt_sim.export.tracing import Function
from odt_sim.memory import memory_limit


def convert(signatures: Signatures, *, flex: bool = False) -> bytes:
    """Convert signatures with TFLite's built-in ops, or also with Flex ops."""
    _check_memory(signatures)
    with tempfile.TemporaryDirectory() as directory:
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        tf.saved_model.save(signatures.module, directory, signatures=signatures.functions, options=options)
        converter = tf.lite.TFLiteConverter.from_saved_model(directory, signature_keys=list(signatures.functions))
        flex_ops = [tf.lite.OpsSet.SELECT_TF_OPS] if flex else []
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS, *flex_ops]
        converter.experimental_enable_resource_variables = True
        try:
            return bytes(converter.convert())
        except Exception as error:  # the converter raises private types
            line = " ".join(str(error).split())[:300]
            raise ExportError(f"TensorFlow's converter failed: {line}") from error


def _check_memory(signatures: Signatures) -> None:
    """Refuse a batch that needs more memory than the machine has."""
    needed, available = sum(map(_peak, signatures.functions.values())), memory_limit()
    if needed > available:
        raise ExportError(
            f"batch_size: a step needs at least {needed / 1e9:.0f} GB of memory, found {available / 1e9:.0f} GB; "
            "use a smaller model.batch_size"
        )


def _peak(function: Function) -> int:
    """Return the peak memory of a function's tensors in bytes; open sizes count as 0."""
    operations = function.graph.get_operations()
    last_use = {t.name: i for i, op in enumerate(operations) for t in op.inputs}
    released: dict[int, int] = defaultdict(int)
    live = peak = 0
    for i, op in enumerate(operations):
        for t in op.outputs:
            size = (t.shape.num_elements() or 0) * t.dtype.size
            live += size
            released[last_use.get(t.name, i)] += size
        peak = max(peak, live)
        live -= released[i]
    return peak
