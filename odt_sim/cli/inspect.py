"""The command `odt-sim inspect`: print what a `.tflite` file holds."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from odt_sim.model.flatbuffer import TensorInfo
from odt_sim.model.trainable import TrainableModel
from odt_sim.model_page.page import write_model_page


def inspect(arguments: Sequence[str]) -> int:
    """Print a model and return the exit code."""
    parser = argparse.ArgumentParser("odt-sim inspect", description="Print what a .tflite file holds.")
    parser.add_argument("file", type=Path, metavar="FILE", help="a .tflite file")
    parser.add_argument("--html", type=Path, metavar="OUT", help="write a page with its graphs and weights instead")
    options = parser.parse_args(arguments)
    if options.html:
        write_model_page(options.file, options.html)
        print(f"page: {options.html}")
    else:
        print_model(options.file)
    return 0


def print_model(path: Path) -> None:
    """Print the signatures, the parameters and the ops of a trainable model.

    Raises:
        ModelError: The file is not a trainable model.
    """
    model = TrainableModel.load(path)
    console = Console()
    console.print(
        f"[bold]{escape(str(path))}[/bold]: {len(model.content):,} bytes, fingerprint {model.fingerprint[:16]}"
    )
    console.print(escape(_training(model)))
    console.print(_signatures(model))
    console.print(_parameters(model))
    console.print(_operators(model))


def _training(model: TrainableModel) -> str:
    if model.manifest is None:
        return "no manifest: exported by another tool"
    settings = {key: value for key, value in model.manifest.optimizer.items() if value and key != "name"}
    if not settings.get("use_ema"):
        settings.pop("ema_momentum", None)  # Keras sets it even if nothing is averaged
    rate = settings.pop("learning_rate", None)
    name = model.manifest.optimizer.get("name", "unknown")
    optimizer = " ".join([str(name), *(f"{k}={v}" for k, v in settings.items())])
    optimizer += f", default learning rate {rate:g}" if isinstance(rate, float | int) else ""
    loss = f"{model.loss} of {'logits' if model.from_logits else 'outputs'}" if model.loss else "loss unknown"
    rows = f"{model.batch_size}" if model.fixed_batch else f"any size, {model.batch_size} by default"
    return f"{model.name}: {loss}, batches of {rows}, optimizer {optimizer}"


def _shape(tensor: TensorInfo) -> str:
    return escape(
        f"{tensor.name} {tensor.dtype}[{', '.join(str(size) if size >= 0 else '?' for size in tensor.shape)}]"
    )


def _few(tensors: dict[str, TensorInfo]) -> str:
    shown = [_shape(tensor) for tensor in tensors.values()]
    return "\n".join(shown) if len(shown) <= 4 else f"{shown[0]}\n.. {shown[-1]} ({len(shown)})"


def _signatures(model: TrainableModel) -> Table:
    table = Table("signature", "inputs", "outputs", title="Signatures", title_justify="left", box=None)
    for name, signature in model.signatures.items():
        table.add_row(name, _few(signature.inputs), _few(signature.outputs))
    return table


def _parameters(model: TrainableModel) -> Table:
    title = f"Parameters: {model.layout.size:,} floats"
    table = Table("", "name", "shape", "role", "group", title=title, title_justify="left", box=None)
    for i, parameter in enumerate(model.parameters):
        shape = " x ".join(map(str, parameter.shape)) or "scalar"
        table.add_row(f"a{i}", escape(parameter.name), shape, parameter.role, parameter.group)
    return table


def _operators(model: TrainableModel) -> Table:
    table = Table("op", *model.operators, title="Ops", title_justify="left", box=None)
    for name in sorted({name for counts in model.operators.values() for name in counts}):
        table.add_row(name, *(str(counts.get(name, "")) for counts in model.operators.values()))
    return table
