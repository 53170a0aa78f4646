"""The command `odt-sim deflex`: rewrite a `.tflite` file with Flex ops so that it trains on any LiteRT interpreter."""

import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from odt_sim._support.files import write_file
from odt_sim.cli.command_table import parsed
from odt_sim.doctor.file_checks import lost_activations
from odt_sim.errors import ExportError
from odt_sim.export.cache import in_process, warn
from odt_sim.model.reading.graph import Graph, operator_counts
from odt_sim.model.reading.graph_reader import read_graph
from odt_sim.model.trainable import read_file


def deflex(arguments: Sequence[str]) -> int:
    """Rewrite the file, print what changed, and return the exit code."""
    options = parsed("deflex", arguments)
    before, size = rewrite(options.source, options.output, options.batch_size, check=not options.no_check)
    content = options.output.read_bytes()
    if lost := [name for name in before.signatures if next(lost_activations(before, name), None)]:
        warnings.warn(
            f"{options.source}: an activation was lost in {', '.join(lost)} when the file was converted, so "
            f"{options.output} lacks it too; see D205 in: odt-sim doctor {options.source}",
            stacklevel=1,
        )
    print("\n".join(described(before, read_graph(content, str(options.output)))))
    print(f"{options.output}: {len(content):,} bytes, was {size:,}")
    return 0


def rewrite(source: Path, output: Path, batch_size: int | None, *, check: bool = True) -> tuple[Graph, int]:
    """Write the rewritten file; return the source's graph and its size in bytes.

    Raises:
        ModelError: The source is not a readable `.tflite` file.
        ExportError: The output exists, or the source cannot be rewritten; nothing is written.
    """
    content = read_file(source)
    graph = read_graph(content, str(source))
    if output.exists():
        raise ExportError(f"{output}: already exists; choose another name, or remove it first")
    spec = {"name": source.stem, "deflex": str(source), "batch_size": batch_size, "check": check}
    rewritten, messages = in_process(spec, f"TensorFlow cannot convert {source}")
    warn(messages)
    write_file(output, rewritten)
    return graph, len(content)


def described(before: Graph, after: Graph) -> list[str]:
    """Return a line per signature, with its Flex ops and its ops before and after; and one for new signatures."""
    lines = []
    for name in before.signatures:
        flex = Counter(op.kind for op in before.ops(name) if op.flex)
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(flex.items())) or "no Flex ops"
        result = f"now {_ops(after, name)}" if _kept(before, after, name) else "replaced"
        lines.append(f"{name}: {kinds}; {_ops(before, name)} ops, {result}")
    added = [name for name in after.signatures if not _kept(before, after, name)]
    return [*lines, f"new signatures: {', '.join(added)}"] if added else lines


def _kept(before: Graph, after: Graph, name: str) -> bool:
    """Return whether a signature has the same inputs in both files; `restore` changes from a checkpoint to arrays."""
    both = name in before.signatures and name in after.signatures
    return both and before.signatures[name].inputs.keys() == after.signatures[name].inputs.keys()


def _ops(graph: Graph, name: str) -> int:
    return sum(operator_counts(graph, name).values())
