"""The command `odt-sim join`: write one trainable `.tflite` of a model in several files without signatures."""

from collections.abc import Sequence
from pathlib import Path

from odt_sim._support.files import write_file
from odt_sim.cli.command_table import ROLES, parsed
from odt_sim.errors import ModelError
from odt_sim.model.foreign.joining import join as joined
from odt_sim.model.trainable import TrainableModel


def join(arguments: Sequence[str]) -> int:
    """Write the joined file and return the exit code."""
    options = parsed("join", arguments)
    files = _files(options.parts)
    if options.output.exists():
        raise ModelError(f"{options.output}: already exists; choose another name, or remove it first")
    write_file(options.output, joined(**files))
    model = TrainableModel.load(options.output)
    shapes = ", ".join(f"{p.name} {list(p.shape)}" for p in model.parameters)
    print(f"{options.output}: {options.output.stat().st_size:,} bytes, signatures {', '.join(model.signatures)}")
    print(f"weights: {shapes}")
    return 0


def _files(parts: Sequence[str]) -> dict[str, Path]:
    files = {}
    for text in parts:
        role, equals, path = text.partition("=")
        if role not in ROLES or not equals or not path or role in files:
            raise ModelError(f"join: expected each of {', '.join(ROLES)} once, as ROLE=FILE; found {text!r}")
        files[role] = Path(path)
    missing = [role for role in ROLES[:3] if role not in files]
    if missing:
        raise ModelError(f"join: no {missing[0]}; add {missing[0]}=FILE")
    return files
