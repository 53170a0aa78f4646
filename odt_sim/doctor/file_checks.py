"""Checks of a file's declarations, without running it."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from odt_sim._support.text import counted, few
from odt_sim.doctor import findings as kinds
from odt_sim.doctor.findings import Finding
from odt_sim.doctor.places import places
from odt_sim.errors import ModelError
from odt_sim.model.contract.browsers import TYPES
from odt_sim.model.contract.manifest import METADATA_NAME, Manifest
from odt_sim.model.contract.names import parts
from odt_sim.model.foreign.roles import Roles as FoundRoles
from odt_sim.model.reading.graph import ACTIVATIONS, Graph, Handle, Op, Tensor

Roles = Mapping[str, Mapping[str, str]]
"""By role (`train`, `infer`, `embed`, `parameters`, `restore`), the signature's `name`, and its names for `x`, `y`,
`loss` and `output`."""

NEEDED = ("train", "infer", "embed", "parameters", "restore")
"""The roles that a simulation needs."""

MOST = 12
"""The most places that a finding names."""

_NAMED = re.compile(rf"(.*/)?({'|'.join(ACTIVATIONS)})[_\d]*")
_COMPUTED = (*map(str.upper, ACTIVATIONS), "RELU_N1_TO_1")


def manifest_of(graph: Graph, where: str) -> Manifest | None:
    """Return a file's manifest; None if it has none, or a damaged one, which loading the model reports."""
    text = graph.metadata.get(METADATA_NAME)
    try:
        return None if text is None else Manifest.from_json(text, where)
    except ModelError:
        return None


def check_file(graph: Graph, roles: Roles, all_roles: FoundRoles, missing: str) -> Iterator[Finding]:
    """Yield the findings of the declarations.

    Args:
        graph: The file's graph.
        roles: Its signatures by role.
        all_roles: The roles as found in the graph, with the dependencies in each signature.
        missing: Why no signature trains or infers.
    """
    if not any(entry.declared for entry in graph.signatures.values()):
        yield Finding(kinds.NO_SIGNATURES, "", "only the main function found")
    if "train" not in roles:
        yield Finding(kinds.NO_TRAIN, "", missing or "no signature trains")
    elif "infer" not in roles:
        yield Finding(kinds.NO_INFER, "", missing or "no signature infers")
    yield from _ops(graph, roles)
    for name in needed_signatures(roles):
        if lost := list(lost_activations(graph, name)):
            yield Finding(kinds.LOST_ACTIVATION, name, few(lost, MOST))
    yield from _browser(graph)
    yield from _weights(graph)
    if "train" in roles:
        yield from _state(graph, roles)
        yield from _batch(graph, roles)
    if {"parameters", "restore"} <= roles.keys():
        yield from _order(roles, all_roles)


def needed_signatures(roles: Roles) -> list[str]:
    """Return the signatures that a simulation calls."""
    return [own["name"] for role, own in roles.items() if role in NEEDED]


def _ops(graph: Graph, roles: Roles) -> Iterator[Finding]:
    needed = needed_signatures(roles)
    for name in graph.signatures:
        flex = flex_ops(graph, name)
        if flex:
            kind = kinds.FLEX_IN_STEP if name in needed else kinds.FLEX_ELSEWHERE
            yield Finding(kind, name, "; ".join(f"{op}{_where(found)}" for op, found in flex.items()))
    custom = sorted({op.kind for name in needed for op in graph.ops(name) if is_custom(op)})
    if custom:
        yield Finding(kinds.CUSTOM_OPS, "", ", ".join(custom))


def _where(named_places: list[str]) -> str:
    """Return the places of some ops of one kind."""
    counts = Counter(place for place in named_places if place)
    named = [place if count == 1 else f"{place} ({count})" for place, count in counts.most_common()]
    if named:
        return f" at {few(named, MOST)}"
    return f" ({len(named_places)} times)" if len(named_places) > 1 else ""


def is_custom(op: Op) -> bool:
    """Return whether an op is neither built in nor an op of full TensorFlow."""
    return not op.flex and not hasattr(schema.BuiltinOperator, op.kind)


def flex_ops(graph: Graph, signature: str) -> dict[str, list[str]]:
    """Return the places of the Flex ops in a signature and the subgraphs that it calls, by kind of op."""
    found: dict[str, list[str]] = {}
    for index in graph.reachable(graph.signatures[signature].subgraph):
        for op, place in zip(graph.subgraphs[index].ops, places(graph, index), strict=True):
            if op.flex:
                found.setdefault(op.kind, []).append(str(place))
    return dict(sorted(found.items()))


def _browser(graph: Graph) -> Iterator[Finding]:
    for name, entry in graph.signatures.items():
        tensors = graph.subgraphs[entry.subgraph].tensors
        refused = [
            f"{key} is {tensors[i].dtype}"
            for key, i in {**entry.inputs, **entry.outputs}.items()
            if tensors[i].dtype not in TYPES
        ]
        if refused:
            yield Finding(kinds.NO_BROWSER_TYPE, name, few(refused, MOST))


def _weights(graph: Graph) -> Iterator[Finding]:
    found = [
        text
        for variable in graph.variables.values()
        if variable.initial is not None and (text := _not_finite(variable.name, variable.initial))
    ]
    initial = {id(variable.initial) for variable in graph.variables.values()}
    for subgraph in graph.subgraphs:
        constants = (tensor for tensor in subgraph.tensors if tensor.constant and id(tensor) not in initial)
        found += [text for tensor in constants if (text := _not_finite(tensor.name, tensor, least=2))]
    if found:
        yield Finding(kinds.NOT_FINITE, "", few(list(dict.fromkeys(found)), MOST))


def _not_finite(name: str, tensor: Tensor, least: int = 1) -> str:
    """Return how many values are not finite; empty if none. A single infinite constant is an ordinary bound."""
    if tensor.dtype not in ("float16", "float32", "float64"):
        return ""
    try:
        value: Any = tensor.value()
    except ModelError:  # a damaged constant, which loading the file reports
        return ""
    count = value.size - int(np.isfinite(value).sum())
    return f"{name}: {count} of {value.size} values" if count and value.size >= least else ""


def _state(graph: Graph, roles: Roles) -> Iterator[Finding]:
    train = roles["train"]["name"]
    others = [name for name in graph.signatures if name != train]
    assigned = graph.assigned_by(train)
    for role in ("train", "infer"):
        if role in roles:
            yield from _uninitialized(graph, roles[role]["name"])
    used = None if "infer" not in roles else graph.read_by(roles["infer"]["name"])
    weights = [handle for handle in assigned if used is None or handle in used]
    returned, set_by = (
        {handle for name in others if graph.signatures[name].declared for handle in touched(name)}
        for touched in (graph.read_by, graph.assigned_by)
    )
    if "parameters" not in roles:
        others_read = sorted({name for name in others for h in weights if h in graph.read_by(name)})
        yield Finding(kinds.NO_READER, "", f"read only by {', '.join(others_read) or 'the step'}")
    if "restore" not in roles:
        yield Finding(kinds.NO_WRITER, "", "no signature takes arrays of the weights' shapes and assigns them")
    slots = [handle for handle in assigned if handle not in weights and handle in graph.read_by(train)]
    kept = [handle.name for handle in slots if handle not in returned or handle not in set_by]
    if kept:
        yield Finding(kinds.UNSAVED, train, few(kept, MOST))


def _order(roles: Roles, all_roles: FoundRoles) -> Iterator[Finding]:
    """Compare the variables that a signature returns with those that another one sets, name by name."""
    read, written = (all_roles.flows[roles[role]["name"]] for role in ("parameters", "restore"))
    outputs, inputs = (
        sorted(side, key=lambda name: (len(name), name)) for side in (read.entry.outputs, written.entry.inputs)
    )
    if len(outputs) != len(inputs):
        return
    moved, lost = [], []
    returned = {name: handle for name in outputs for handle in read.of_output(name) if isinstance(handle, Handle)}
    for output, name in zip(outputs, inputs, strict=True):
        changed = [handle for handle, sources in written.assigned.items() if name in sources]
        back = [other for other, handle in returned.items() if handle in changed]
        if not back:
            lost.append(name)
        elif output not in back:
            moved.append(f"{name} comes back as {back[0]}")
    for kind, names in ((kinds.OTHER_ORDER, moved), (kinds.NOT_WRITTEN, lost)):
        if names:
            yield Finding(kind, roles["restore"]["name"], few(names, MOST))


def _uninitialized(graph: Graph, signature: str) -> Iterator[Finding]:
    read = [graph.variables[handle] for handle in graph.read_by(signature)]
    names = [variable.name for variable in read if not variable.initialized]
    if names:
        setters = sorted({name for v in read if not v.initialized for name in v.assigned_by if name != signature})
        where = f"; {', '.join(setters)} assigns them" if setters else ""
        yield Finding(kinds.UNINITIALIZED, signature, f"{few(names, MOST)}{where}")


def _batch(graph: Graph, roles: Roles) -> Iterator[Finding]:
    own: Mapping[str, str] = roles["train"]
    entry = graph.signatures[own["name"]]
    x = next(iter(parts(entry.inputs, own.get("x", "x")).values()), None)
    tensor = graph.subgraphs[entry.subgraph].tensors[x] if x is not None else None
    if tensor is not None and tensor.shape_signature and tensor.shape_signature[0] > 0:
        rows = tensor.shape_signature[0]
        yield Finding(kinds.STATIC_BATCH, own["name"], f"{counted(rows, 'row')} in each call")


def lost_activations(graph: Graph, signature: str) -> Iterator[str]:
    """Yield the outputs of products in a signature that are named after an activation, which no op computes.

    TensorFlow's converter makes `relu(x @ w)` one op, FULLY_CONNECTED with an activation, and names its output after both.
    If a signature assigns w and no bias is added, it then turns that op into BATCH_MATMUL, which has no activation. Only the
    activation's name remains. If the activation is the signature's output, not even the name remains: the file equals one
    without the activation.
    """
    for index in graph.reachable(graph.signatures[signature].subgraph):
        subgraph = graph.subgraphs[index]
        activated = {i for op in subgraph.ops if op.kind in _COMPUTED for i in op.inputs}
        for op in subgraph.ops:
            if op.kind == "BATCH_MATMUL" and op.outputs[0] not in activated:
                tensor = subgraph.tensors[op.outputs[0]]
                _, *fused = tensor.name.split(";")
                if len(tensor.shape) == 2 and any(_NAMED.fullmatch(name) for name in fused):
                    yield tensor.name
