"""From emitted signatures to the bytes of a `.tflite` file."""

import tempfile

import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.signatures import Signatures


def convert(signatures: Signatures, *, flex: bool = False) -> bytes:
    """Converts signatures with TFLite's built-in ops only, or with those of full TensorFlow for what remains.

    Args:
        signatures: The signatures.
        flex: Whether ops without a built-in kernel become Flex ops.

    Raises:
        ExportError: TensorFlow's converter failed.
    """
    with tempfile.TemporaryDirectory() as directory:
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        tf.saved_model.save(signatures.module, directory, signatures=signatures.functions, options=options)
        converter = tf.lite.TFLiteConverter.from_saved_model(directory, signature_keys=list(signatures.functions))
        flex_ops = [tf.lite.OpsSet.SELECT_TF_OPS] if flex else []
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS, *flex_ops]
        converter.experimental_enable_resource_variables = True
        try:
            return bytes(converter.convert())
        except Exception as error:  # the converter raises types of its own that are not public
            line = " ".join(str(error).split())[:300]
            raise ExportError(f"TensorFlow's converter failed: {line}") from error
