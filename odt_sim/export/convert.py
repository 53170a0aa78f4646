"""From emitted signatures to the bytes of a `.tflite` file."""

import tempfile

import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.signatures import Signatures


def convert(signatures: Signatures) -> bytes:
    """Converts signatures with TFLite's built-in ops only.

    Raises:
        ExportError: TensorFlow's converter failed.
    """
    with tempfile.TemporaryDirectory() as directory:
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        tf.saved_model.save(signatures.module, directory, signatures=signatures.functions, options=options)
        converter = tf.lite.TFLiteConverter.from_saved_model(directory, signature_keys=list(signatures.functions))
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        converter.experimental_enable_resource_variables = True
        try:
            return bytes(converter.convert())
        except Exception as error:  # the converter raises types of its own that are not public
            line = " ".join(str(error).split())[:300]
            raise ExportError(f"TensorFlow's converter failed on the lowered model: {line}") from error
