"""The command `odt-sim inspect`: print the content of any `.tflite` file, and whether it trains here."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, cast

import yaml  # type: ignore[import-untyped]
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from odt_sim._support.user_code import imported
from odt_sim.cli.command_table import parsed
from odt_sim.cli.hydra.settings import use_libyaml
from odt_sim.errors import ModelError
from odt_sim.model.contract.manifest import METADATA_NAME, NO_LOSS, Output
from odt_sim.model.foreign.adaptation import Adaptation, tried
from odt_sim.model.foreign.roles import Roles, find_roles
from odt_sim.model.reading.flatbuffer import fingerprint
from odt_sim.model.reading.graph import EntryPoint, Graph, operator_counts
from odt_sim.model.reading.graph_reader import has_metadata, read_graph
from odt_sim.model.trainable import TrainableModel, read_file
from odt_sim.model_page.page import write_model_page

if TYPE_CHECKING:
    from odt_sim.strategies.base import Strategy

use_libyaml()

LONGEST_LIST = 4
"""The longest numbered list of tensors that is printed in full."""

GAP = 2
"""The characters between two columns of a table."""


def inspect(arguments: Sequence[str]) -> int:
    """Print the content of a file, or write it as a page, and return the exit code."""
    options = parsed("inspect", arguments)
    if options.html:
        write_model_page(options.file, options.html)
        print(f"page: {options.html}")
    else:
        print_model(options.file)
    return 0


def print_model(path: Path) -> None:
    """Print whether a file trains here, its signatures, weights and ops.

    Raises:
        ModelError: The file cannot be read, is not a `.tflite` file, or is damaged.
    """
    content, where = read_file(path), str(path)
    try:
        adaptation = tried(content, where)
        model = TrainableModel.from_content(adaptation.content, where=where)
    except ModelError as error:
        graph = read_graph(content, where)
        if has_metadata(content, METADATA_NAME) and not any(map(graph.flex_ops, graph.signatures)):
            raise  # a damaged file of odt_sim
        reason = str(error).removeprefix(f"{where}: ")
        _print_file(Console(), path, content, f"[red]does not train here[/red]: {escape(reason)}")
        _print_signatures(Console(), graph, find_roles(graph, where))
        if graph.variables:
            Console().print(_variables(graph))
        _print_operators(Console(), graph)
    else:
        _print_trainable(path, content, model, adaptation)


def _print_file(console: Console, path: Path, content: bytes, verdict: str) -> None:
    """Print a line with the verdict, and a line with size and fingerprint."""
    console.print(f"[bold]{escape(str(path))}[/bold]: {verdict}", soft_wrap=not console.is_terminal, highlight=False)
    console.print(f"{len(content):,} bytes, fingerprint {fingerprint(content)[:16]}")


def _print_trainable(path: Path, content: bytes, model: TrainableModel, adaptation: Adaptation) -> None:
    console = Console()
    verdict = "[green]trains here[/green]"
    if adaptation.unusable:
        first = escape(adaptation.unusable[0])
        verdict += f" once it has finite weights: {first} starts with NaN or infinity; give it a signature 'initialize'"
    _print_file(console, path, content, verdict)
    console.print(escape(_training(model)))
    graph = read_graph(content, str(path))
    if adaptation.roles is not None:
        notes = "; ".join(["no manifest: exported by another tool", *adaptation.notes])
        console.print(escape(notes), soft_wrap=not console.is_terminal, highlight=False)
    _print_signatures(console, graph, adaptation.roles)
    console.print(_parameters(model))
    for line in _allowed_strategies(model):
        console.print(escape(line), soft_wrap=not console.is_terminal, highlight=False)
    _print_operators(console, graph)


def _print_signatures(console: Console, graph: Graph, roles: Roles | None) -> None:
    """Print the file's own signatures; with roles, those of a file of another tool, and the reasons for them."""
    headings = ["signature", *(["role"] if roles else []), "inputs", "outputs"]
    table = Table(*headings, title="Signatures", title_justify="left", box=None)
    by_signature = {role.signature: role for role in roles.found.values()} if roles else {}
    for name, entry in graph.signatures.items():
        role = by_signature.get(name)
        shown = name if entry.declared else "(no signature)"
        names = {own: key for key, own in [*role.inputs.items(), *role.outputs.items()]} if role else {}
        kind = [f"{role.role}, {role.certainty}" if role else ""] if roles else []
        sides = (_tensors(graph, entry, side, names) for side in (entry.inputs, entry.outputs))
        table.add_row(escape(shown), *kind, *sides)
    console.print(table)
    for role in by_signature.values():
        text = f"{role.role}: {role.signature}, {role.certainty}: {'; '.join(role.reasons)}"
        console.print(escape(text), highlight=False)


def _tensors(graph: Graph, entry: EntryPoint, side: Mapping[str, int], names: Mapping[str, str]) -> str:
    """Return inputs or outputs, each with its role if the role differs from its name."""
    tensors = graph.subgraphs[entry.subgraph].tensors
    roles = [names.get(name, name) for name in side]
    return _shortened(
        (role, escape(f"{name} {tensors[i].text}") + (f" ({role})" if role != name else ""))
        for role, (name, i) in zip(roles, side.items(), strict=True)
    )


def _shortened(lines: Iterable[tuple[str, str]]) -> str:
    """Return the lines of tensors; a long numbered list, such as a0 to a30, is shortened to its first and last lines.

    Args:
        lines: The name and the line of each tensor.
    """
    shown: list[str] = []

    def list_of(line: tuple[str, str]) -> str:  # inputs and labels are never shortened, since apps pass each
        return line[0] if line[0].startswith(("x", "y")) else line[0].rstrip("0123456789")

    for _, numbered in groupby(lines, list_of):
        several = [line for _, line in sorted(numbered, key=lambda named: (len(named[0]), named[0]))]  # a2 before a10
        shown += several if len(several) <= LONGEST_LIST else [several[0], f".. {several[-1]} ({len(several)})"]
    return "\n".join(shown)


def _variables(graph: Graph) -> Table:
    variable = Column("variable", overflow="fold")
    table = Table(variable, "form", "read by", "set by", "starts", title="Variables", title_justify="left", box=None)
    for v in graph.variables.values():
        starts = "constant" if v.initial else "computed" if v.initialized else "not initialized"
        form = f"{v.dtype}{list(v.shape)}" if v.shape is not None else "unknown"
        table.add_row(*map(escape, (v.name, form, ", ".join(v.read_by), ", ".join(v.assigned_by), starts)))
    return table


def _training(model: TrainableModel) -> str:
    if model.manifest is None:
        return "no manifest: exported by another tool"
    settings = {key: value for key, value in model.manifest.optimizer.items() if value and key != "name"}
    if not settings.get("use_ema"):
        settings.pop("ema_momentum", None)  # Keras sets it even without averaging
    rate = settings.pop("learning_rate", None)
    name = model.manifest.optimizer.get("name", "unknown")
    optimizer = " ".join([str(name), *(f"{k}={v}" for k, v in settings.items())])
    optimizer += f", default learning rate {rate:g}" if isinstance(rate, float | int) else ""
    loss = " + ".join(map(_loss, model.outputs)) if model.loss or model.returns_losses else "loss unknown"
    rows = f"{model.batch_size}" if model.fixed_batch else f"any size, {model.batch_size} by default"
    return f"{model.name}: {loss}, batches of {rows}, optimizer {optimizer}"


def _loss(output: Output) -> str:
    """Return the description of a loss, such as `0.5 mean_squared_error of outputs (size)`."""
    if output.loss == NO_LOSS:
        return "a loss of its own in training only"
    weight = "" if output.loss_weight == 1 else f"{output.loss_weight:g} "
    name = f" ({output.name})" if output.name else ""
    ignored = "" if output.ignore_class is None else f" without label {output.ignore_class}"
    return f"{weight}{output.loss or 'a loss of its own'} of {'logits' if output.from_logits else 'outputs'}{ignored}{name}"


def _parameters(model: TrainableModel) -> Table:
    title = f"Parameters: {model.layout.size:,} floats"
    name = Column("name", overflow="fold")
    table = Table("", name, "shape", "role", "group", title=title, title_justify="left", box=None)
    for i, parameter in enumerate(model.parameters):
        shape = " x ".join(map(str, parameter.shape)) or "scalar"
        table.add_row(f"a{i}", escape(parameter.name), shape, parameter.role, parameter.group)
    return table


def _print_operators(console: Console, graph: Graph) -> None:
    """Print the ops of each signature; signatures that do not fit side by side follow in further tables."""
    operators, title = {name: operator_counts(graph, name) for name in graph.signatures}, "Ops"
    longest = max((len(name) for counts in operators.values() for name in counts), default=0)
    for fitting in _side_by_side(operators, console.width - longest - GAP):
        console.print(_operators({name: operators[name] for name in fitting}, title))
        title = ""


def _side_by_side(names: Iterable[str], width: int) -> list[list[str]]:
    """Return the column headings of each table, such that a table has at most a width, or only one column."""
    tables: list[list[str]] = [[]]
    for name in names:
        if tables[-1] and sum(len(each) + GAP for each in [*tables[-1], name]) > width:
            tables.append([])
        tables[-1].append(name)
    return tables


def _operators(operators: Mapping[str, Mapping[str, int]], title: str) -> Table:
    table = Table(title=title or None, title_justify="left", box=None)
    table.add_column("op", no_wrap=True)
    for name in operators:
        table.add_column(escape(name), overflow="fold")
    for name in sorted({name for counts in operators.values() for name in counts}):
        table.add_row(escape(name), *(str(counts.get(name, "")) for counts in operators.values()))
    return table


def _allowed_strategies(model: TrainableModel) -> list[str]:
    """Return a line with the strategies that a model allows, then lines with the others by their missing capabilities."""
    allowed: list[str] = []
    refused = defaultdict[str, list[str]](list)
    for name, strategy in _shipped().items():
        missing = ", ".join(sorted(strategy.needed(model) - model.capabilities))
        (refused[missing] if missing else allowed).append(name)
    others = [f"  {missing}: {', '.join(names)}" for missing, names in sorted(refused.items())]
    return [
        f"strategies: {', '.join(allowed) or 'none'}",
        *(["other strategies, by what they need:"] if others else []),
        *others,
    ]


def _shipped() -> "dict[str, Strategy]":
    """Return the strategies of `conf/strategy` by name."""
    folder = files("odt_sim.conf").joinpath("strategy")
    options = sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name)
    return {file.name.removesuffix(".yaml"): _made(file.read_text()) for file in options}


def _made(option: str) -> "Strategy":
    """Return the strategy of a shipped option without Hydra, whose import takes as long as everything else."""
    settings = yaml.safe_load(option)
    return cast("Strategy", imported(settings.pop("_target_"), "strategy")(**settings))
