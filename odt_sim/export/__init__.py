"""From what an author has, such as an unchanged Keras model, to a trainable `.tflite` file.

The only part that imports TensorFlow, and only when used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from odt_sim.errors import ExportError

if TYPE_CHECKING:
    from odt_sim.export.keras import export_model
    from odt_sim.export.tflite_model import (
        SAVED_MODEL_DIR,
        BaseTFLiteModel,
        convert_saved_model,
        save_model,
        save_tflite_model,
        tflite_model_class,
    )

__all__ = [
    "SAVED_MODEL_DIR",
    "BaseTFLiteModel",
    "convert_saved_model",
    "export_model",
    "save_model",
    "save_tflite_model",
    "tflite_model_class",
]


def __getattr__(name: str) -> Any:
    """Imports TensorFlow only when the exporter itself is asked for (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"odt_sim.export.{'keras' if name == 'export_model' else 'tflite_model'}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("tensorflow", "keras"):
            raise
        raise ExportError(
            f"export needs {error.name}, which is not installed; run: pip install 'odt_sim[export]'"
        ) from error
    return getattr(module, name)
