"""The page of a `.tflite` file: `odt-sim inspect FILE --html OUT`."""

import json
from collections import Counter
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from odt_sim._support.files import refuse_source, rendered, write_file
from odt_sim.doctor.trial import tried
from odt_sim.errors import ModelError
from odt_sim.model.graph import Graph, Subgraph
from odt_sim.model.graph_reader import read_graph
from odt_sim.model.manifest import METADATA_NAME, Manifest
from odt_sim.model.trainable import read_file
from odt_sim.model_page.drawing import HIDDEN, RUNNERS, drawing, runner
from odt_sim.model_page.histogram import Values, values_of

LARGEST = 1024
"""The size in bytes from which a constant that is not a variable's initial value is listed."""


class Signature(NamedTuple):
    """A row of the table of signatures."""

    name: str
    inputs: list[str]
    outputs: list[str]
    ops: int
    runners: list[tuple[str, str, int]]
    milliseconds: float | None


class Weight(NamedTuple):
    """A row of the table of weights."""

    name: str
    text: str
    size: int
    role: str
    values: Values | None


def write_model_page(path: Path, output: Path) -> None:
    """Write the page of a file; the file runs in a subprocess.

    Raises:
        ModelError: The file cannot be read.
        FileError: The page cannot be written, or would overwrite the file.
    """
    refuse_source(output, path)
    write_file(output, model_page(read_file(path), str(path)).encode())


def model_page(content: bytes, where: str) -> str:
    """Return the page, which loads nothing from elsewhere.

    Args:
        content: The file's bytes.
        where: The file's name.

    Raises:
        ModelError: The file cannot be read.
    """
    graph = read_graph(content, where)
    ran = tried(content, where, {}, experiments=["runners"])
    found = ran.result("runners") or {}
    names, layers = _names(graph, where), _layers(graph, where)
    signatures = {name: _signature(graph, name, found.get(name, {})) for name in graph.signatures}
    drawings = {
        name: drawing(graph, entry.subgraph, _numbers(found.get(name, {})), layers)
        for name, entry in graph.signatures.items()
    }
    return rendered(
        "model.html",
        "odt_sim.model_page",
        title=Path(where).name,
        bytes=len(content),
        signatures=list(signatures.values()),
        variables=[_variable(names.get(v.name, v.name), v) for v in graph.variables.values()],
        constants=_constants(graph),
        runners=RUNNERS,
        present={key for signature in signatures.values() for key, _, _ in signature.runners},
        problem=next(iter({**ran.errors, **ran.deaths}.values()), ""),
        graphs=Markup(_script_safe({"graphs": drawings, "runners": RUNNERS, "names": names})),
    )


def _script_safe(data: Any) -> str:
    """Return JSON that is safe inside a script element."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c").replace("\u2028", "\\u2028")


def _numbers(found: Mapping[str, Any]) -> set[int] | None:
    delegated = found.get("delegated")
    return None if delegated is None else set(delegated)


def _signature(graph: Graph, name: str, found: Mapping[str, Any]) -> Signature:
    entry = graph.signatures[name]
    subgraph, delegated = graph.subgraphs[entry.subgraph], _numbers(found)
    inputs, outputs = (_texts(subgraph, side) for side in (entry.inputs, entry.outputs))
    drawn = [(i, op) for i, op in enumerate(subgraph.ops) if op.kind not in HIDDEN]
    counts = Counter(runner(op, i, delegated) for i, op in drawn)
    shares = [(key, RUNNERS[key], counts[key]) for key in RUNNERS if counts[key]]
    return Signature(name, inputs, outputs, sum(counts.values()), shares, found.get("ms"))


def _texts(subgraph: Subgraph, tensors: Mapping[str, int]) -> list[str]:
    return [f"{key} {subgraph.tensors[i].text}" for key, i in tensors.items()]


def _manifest(graph: Graph, where: str) -> Manifest | None:
    text = graph.metadata.get(METADATA_NAME)
    try:
        return Manifest.from_json(text, where) if text is not None else None
    except ModelError:
        return None


def _names(graph: Graph, where: str) -> dict[str, str]:
    """Return the author's names of variables, where a manifest declares them."""
    manifest = _manifest(graph, where)
    if manifest is None or "parameters" not in graph.signatures:
        return {}
    entry = graph.signatures["parameters"]
    read = {access.op.outputs[0]: access.handle.name for access in graph.accesses[entry.subgraph] if not access.assigns}
    pairs = ((f"a{i}", parameter.name) for i, parameter in enumerate(manifest.parameters))
    return {read[entry.outputs[key]]: name for key, name in pairs if entry.outputs.get(key) in read}


def _layers(graph: Graph, where: str) -> dict[str, str]:
    return {variable: name.rpartition("/")[0] or name for variable, name in _names(graph, where).items()}


def _variable(name: str, variable: Any) -> Weight:
    text = f"{variable.dtype or '?'}{list(variable.shape) if variable.shape is not None else ''}"
    if variable.initial is None:
        role = "computed by the initializer" if variable.initialized else "no initial value"
        return Weight(name, text, variable.size, role, None)
    return Weight(name, text, variable.size, "variable", _values(variable.initial))


def _constants(graph: Graph) -> list[Weight]:
    """Return the large constants of computations, such as frozen weights."""
    initial = {id(variable.initial) for variable in graph.variables.values()}
    found = []
    for subgraph in graph.subgraphs:
        for tensor in subgraph.tensors:
            size = tensor.data.size if tensor.data is not None else 0
            if size >= LARGEST and id(tensor) not in initial and (values := _values(tensor)):
                found.append(Weight(tensor.name, tensor.text, prod(tensor.shape), "constant", values))
    return found


def _values(tensor: Any) -> Values | None:
    try:
        array = tensor.value()
    except ModelError:
        return None
    return values_of(array) if array.dtype.kind in "fiub" and array.size else None
