"""The page of a `.tflite` file: `odt-sim inspect FILE --html OUT`."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from odt_sim._support.files import refuse_source, rendered, write_file
from odt_sim.doctor.file_checks import manifest_of
from odt_sim.doctor.trial import tried
from odt_sim.errors import ModelError
from odt_sim.model.reading.graph import Graph
from odt_sim.model.reading.graph_reader import read_graph
from odt_sim.model.trainable import read_file
from odt_sim.model_page.drawing import HIDDEN, RUNNERS, drawing, runner

LARGEST = 1024
"""The size in bytes from which a constant that is not a variable's initial value is listed."""


BINS = 32
"""The bins of a histogram."""


@dataclass(frozen=True)
class Values:
    """The values of a tensor.

    Attributes:
        least: The smallest finite value; None if there is none.
        mean: The mean of the finite values.
        greatest: The largest finite value.
        deviation: Their standard deviation.
        not_finite: The number of NaN and infinite values.
        bars: The heights of the histogram's bars, from 0 to 1; a single one if all values are equal.
    """

    least: float | None
    mean: float | None
    greatest: float | None
    deviation: float | None
    not_finite: int
    bars: Sequence[float]


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
    ran = tried(content, where, experiments=["runners"])
    found = ran.result("runners") or {}
    names = _names(graph, where)
    layers = {variable: name.rpartition("/")[0] or name for variable, name in names.items()}
    signatures, drawings = [], {}
    for name, entry in graph.signatures.items():
        subgraph, of_signature = graph.subgraphs[entry.subgraph], found.get(name, {})
        numbers = of_signature.get("delegated")
        delegated = None if numbers is None else set(numbers)
        drawn = [(i, op) for i, op in enumerate(subgraph.ops) if op.kind not in HIDDEN]
        counts = Counter(runner(op, i, delegated) for i, op in drawn)
        inputs, outputs = (
            [f"{key} {subgraph.tensors[i].text}" for key, i in side.items()] for side in (entry.inputs, entry.outputs)
        )
        signatures.append(
            {
                "name": name,
                "inputs": inputs,
                "outputs": outputs,
                "ops": len(drawn),
                "runners": [(key, RUNNERS[key], counts[key]) for key in RUNNERS if counts[key]],
                "milliseconds": of_signature.get("ms"),
            }
        )
        drawings[name] = drawing(graph, entry.subgraph, delegated, layers)
    data = json.dumps({"graphs": drawings, "runners": RUNNERS, "names": names}, separators=(",", ":"))
    return rendered(
        "model.html",
        *("odt_sim.model_page", "odt_sim.report"),
        title=Path(where).name,
        bytes=len(content),
        signatures=signatures,
        variables=[_variable(names.get(v.name, v.name), v) for v in graph.variables.values()],
        constants=_constants(graph),
        runners=RUNNERS,
        present={key for signature in signatures for key, _, _ in signature["runners"]},
        problem=next(iter({**ran.errors, **ran.deaths}.values()), ""),
        graphs=Markup(data.replace("<", "\\u003c").replace("\u2028", "\\u2028")),  # safe inside a script element
    )


def _names(graph: Graph, where: str) -> dict[str, str]:
    """Return the author's names of variables, where a manifest declares them."""
    manifest = manifest_of(graph, where)
    if manifest is None or "parameters" not in graph.signatures:
        return {}
    entry = graph.signatures["parameters"]
    read = {access.op.outputs[0]: access.handle.name for access in graph.accesses[entry.subgraph] if not access.assigns}
    pairs = ((f"a{i}", parameter.name) for i, parameter in enumerate(manifest.parameters))
    return {read[entry.outputs[key]]: name for key, name in pairs if entry.outputs.get(key) in read}


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
    """Return the statistics and the histogram of a tensor; None if it is damaged, empty or not of numbers."""
    try:
        array = tensor.value()
    except ModelError:
        return None
    if array.dtype.kind not in "fiub" or not array.size:
        return None
    flat = np.asarray(array, np.float64).reshape(-1)
    finite = flat[np.isfinite(flat)]
    if not finite.size:
        return Values(None, None, None, None, flat.size, [])
    counts, _ = np.histogram(finite, bins=BINS) if finite.max() > finite.min() else (np.array([finite.size]), None)
    return Values(
        float(finite.min()),
        float(finite.mean()),
        float(finite.max()),
        float(finite.std()),
        flat.size - finite.size,
        (counts / counts.max()).tolist(),
    )
