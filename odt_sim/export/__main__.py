"""Export a model by `python -m odt_sim.export PATH`, with its specification (see `cache.exported`) as JSON on stdin.

The specification `{"name": ..., "deflex": FILE, "batch_size": ..., "check": ...}` rewrites a file with Flex ops instead.
"""

import gc
import json
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from odt_sim._support.text import typed_line
from odt_sim._support.user_code import imported
from odt_sim.device.verification_process import call_signatures
from odt_sim.errors import ExportError, ExportWarning, OdtSimError
from odt_sim.export.cache import ADDED, ERROR_MARK, OPTIONS, WARNING_MARK
from odt_sim.model.reading.verification import remember

UNUSED = ("matplotlib", "pandas", "sklearn")
"""Modules that Keras imports if they are installed and an export does not use: 2 s of a 6 s import."""


def export_spec(spec: Mapping[str, Any], path: Path) -> Path:
    """Build, export and verify the model of a specification.

    The initial weights depend only on the specification's `seed`.

    Raises:
        ExportError: The build function fails, or its model cannot be exported.
        ModelError: LiteRT cannot run the exported file.
    """
    from odt_sim.export import add_adapters, export_model  # first: its error says how to install TensorFlow

    built = _build(spec)
    model, example = built if isinstance(built, tuple) and len(built) == 2 else (built, None)
    if spec.get("lora_rank") is not None:
        model = add_adapters(model, spec["lora_rank"], spec.get("head"))
    exported = export_model(
        model,
        path,
        example=example,
        loss=spec["loss"],
        optimizer=None if spec["optimizer"] is None else dict(spec["optimizer"]),
        batch_size=spec["batch_size"],
        name=spec["name"],
        **_options(spec),
    )
    remember(call_signatures(exported.read_bytes(), f"model {spec['name']!r}"))
    return exported


def _import_keras() -> None:
    """Import Keras as if the unused modules were not installed; the user's modules can import them afterwards."""
    hidden = [name for name in UNUSED if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None makes an import fail
    try:
        from odt_sim.export import export_model  # noqa: F401
    finally:
        for name in hidden:
            del sys.modules[name]


def _make(spec: Mapping[str, Any], path: Path) -> None:
    if "deflex" not in spec:
        export_spec(spec, path)
        return
    from odt_sim.export import deflex

    deflex(spec["deflex"], path, batch_size=spec["batch_size"], check=spec["check"])


def _options(spec: Mapping[str, Any]) -> dict[str, Any]:
    options = {option: spec[option] for option in OPTIONS if option in spec and option not in ADDED}
    if options.get("class_weight"):  # JSON keys are strings
        options["class_weight"] = {int(key): value for key, value in options["class_weight"].items()}
    return options


def _build(spec: Mapping[str, Any]) -> Any:
    sys.path[:0] = spec.get("sys_path", ())
    arguments = dict(spec["build"])
    target = arguments.pop("_target_")
    try:
        return _seeded(imported(target, "model.build._target_"), arguments, int(spec["seed"]))
    except SystemExit as error:
        raise ExportError(
            f"model.build: {target} called sys.exit({error.code!r}); return a Keras model, or raise an exception"
        ) from error
    except OdtSimError as error:
        raise ExportError(str(error)) from error
    except Exception as error:  # user code may raise anything
        raise ExportError(f"model.build: {target} failed: {typed_line(error)}") from error


def _seeded(build: Callable[..., Any], arguments: Mapping[str, Any], seed: int) -> Any:
    """Return the result of a build function under a seed.

    If the function was the first to import PyTorch, PyTorch was not seeded, so the function runs again.
    """
    import keras

    while True:
        torch = sys.modules.get("torch")
        keras.utils.set_random_seed(seed)
        if torch is not None:
            torch.manual_seed(seed)
        built = build(**arguments)
        if sys.modules.get("torch") is torch:
            return built


def main() -> int:
    """Export, and return the exit code: 0, or 1 after printing one line to stderr."""
    gc.disable()  # garbage collection takes 2 s, and the process exits after the export
    warnings.simplefilter("always", ExportWarning)
    warnings.formatwarning = lambda message, *_: f"{WARNING_MARK}{message}\n"
    try:
        _import_keras()
        _make(json.load(sys.stdin), Path(sys.argv[1]))
    except OdtSimError as error:
        print(f"{ERROR_MARK}{error}", file=sys.stderr)
        return 1
    except (Exception, SystemExit) as error:
        print(f"{ERROR_MARK}{typed_line(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
