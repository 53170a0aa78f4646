"""Convert emitted signatures to the bytes of a `.tflite` file."""

import tempfile
from collections import defaultdict
from pathlib import Path

import tensorflow as tf
from tensorflow.lite.python.convert import convert_saved_model

from odt_sim._support.system import memory_limit
from odt_sim.errors import ExportError
from odt_sim.export.converter_input import TAG, VERSION, write_converter_input
from odt_sim.export.repeated_reads import with_separate_reads
from odt_sim.export.signatures import Signatures
from odt_sim.export.tracing import Function
from odt_sim.model.sharing import with_shared_constants


def convert(signatures: Signatures, *, flex: bool = False) -> bytes:
    """Convert signatures with TFLite's built-in ops, or also with Flex ops."""
    _check_memory(signatures)
    with tempfile.TemporaryDirectory() as directory:
        write_converter_input(signatures.module.variables_of_model, signatures.functions, Path(directory))
        flex_ops = [tf.lite.OpsSet.SELECT_TF_OPS] if flex else []
        try:
            # `tf.lite.TFLiteConverter` first loads the SavedModel in Python, twice, which takes a quarter of an export.
            content = convert_saved_model(
                saved_model_dir=directory,
                saved_model_version=VERSION,
                saved_model_tags=[TAG],
                saved_model_exported_names=list(signatures.functions),
                target_ops=[tf.lite.OpsSet.TFLITE_BUILTINS, *flex_ops],
                enable_tflite_resource_variables=True,
            )
        except Exception as error:  # the converter raises private types
            line = " ".join(str(error).split())[:300]
            raise ExportError(f"TensorFlow's converter failed: {line}") from error
    return with_shared_constants(with_separate_reads(bytes(content)))


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
