"""From an unchanged Keras model to a trainable `.tflite` file; the only part that imports TensorFlow, and only when used."""

from typing import TYPE_CHECKING, Any

from odt_sim.errors import ExportError

if TYPE_CHECKING:
    from odt_sim.export.keras import export_model

__all__ = ["export_model"]


def __getattr__(name: str) -> Any:
    """Imports TensorFlow only when the exporter itself is asked for (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from odt_sim.export import keras
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("tensorflow", "keras"):
            raise
        raise ExportError(
            f"export needs {error.name}, which is not installed; run: pip install 'odt_sim[export]'"
        ) from error
    return getattr(keras, name)
