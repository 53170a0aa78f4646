"""Export Keras models, SavedModels, model classes and `.tflite` files with Flex ops as trainable `.tflite` files.

TensorFlow is imported only here, and only on first use.
"""

import os
import sys
from contextlib import suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from odt_sim.errors import ExportError

if TYPE_CHECKING:
    from odt_sim.export.emit.rewriting import deflex
    from odt_sim.export.keras.adapters import add_adapters
    from odt_sim.export.keras.model import export_model
    from odt_sim.export.trace.classes import (
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
    "add_adapters",
    "convert_saved_model",
    "deflex",
    "export_model",
    "save_model",
    "save_tflite_model",
    "tflite_model_class",
]

OTHER_BACKEND = (
    "Keras runs on {found}, but exports need TensorFlow; save the model with model.save('model.keras'), and export "
    "the file with KERAS_BACKEND=tensorflow: odt-sim export model=keras_file model.path=model.keras"
)
OLDEST_KERAS = "3.15"  # as in the extra `export`
MODULES = {"add_adapters": "keras.adapters", "export_model": "keras.model", "deflex": "emit.rewriting"}


def _check_backend() -> None:
    """Check Keras' backend before importing Keras, which fails if that backend (jax or torch) is not installed."""
    keras = sys.modules.get("keras")
    found = keras.backend.backend() if keras else os.environ.get("KERAS_BACKEND") or "tensorflow"
    if found != "tensorflow":
        raise ExportError(OTHER_BACKEND.format(found=found))


def _check_versions() -> None:
    """Check that this process imported the installed versions of TensorFlow and Keras, and that Keras is not too old."""
    installed = {name: installed_version(name) for name in ("tensorflow", "keras")}
    for name, found in installed.items():
        loaded = getattr(sys.modules.get(name), "__version__", None)
        if found and loaded and Version(loaded).base_version != Version(found).base_version:
            raise ExportError(
                f"{name} {found} is installed, but this process has already imported {name} {loaded}; restart Python (in a "
                "notebook: restart the kernel)"
            )
    keras = installed["keras"]
    if keras and Version(keras) < Version(OLDEST_KERAS):
        raise ExportError(f"export needs keras>={OLDEST_KERAS}, found {keras}; run: pip install 'odt_sim[export]'")


def installed_version(name: str) -> str | None:
    """Return the version of an installed package; None if no package has this name."""
    try:
        return version(name)
    except PackageNotFoundError:  # another package, such as tensorflow-cpu, may provide it
        return None


def _settle_triton() -> None:
    """Import Triton before TensorFlow, or block its import if TensorFlow is already loaded.

    Triton, a compiler for GPUs, comes with PyTorch, which imports it late, for example for models of `transformers`. Its
    LLVM aborts the process if TensorFlow's LLVM is already loaded; in the reverse order, both work.
    """
    if "tensorflow" in sys.modules:
        sys.modules.setdefault("triton", None)  # type: ignore[arg-type]  # importing it raises ImportError
        return
    with suppress(ImportError):
        import_module("triton")


def __getattr__(name: str) -> Any:
    """Import the exporter, and with it TensorFlow, on first access (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _check_backend()
    _settle_triton()
    _check_versions()
    try:
        module = import_module(f"odt_sim.export.{MODULES.get(name, 'trace.classes')}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("tensorflow", "keras"):
            raise
        raise ExportError(
            f"export needs {error.name}, which is not installed; run: pip install 'odt_sim[export]'"
        ) from error
    return getattr(module, name)
