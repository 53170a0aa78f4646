"""Adaptation of a foreign trainable `.tflite` file to the signature contract.

The file's own signatures stay where their names are free. The adaptation adds `train` and `infer` under canonical
names, a manifest, and signatures that read and write weights and optimizer slots where the file has none that fit.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from odt_sim._support.text import few
from odt_sim.errors import InvocationError, ModelError
from odt_sim.model.contract.manifest import DEFAULT_BATCH_SIZE, LOSSES, METADATA_NAME, Manifest
from odt_sim.model.editing import surgery
from odt_sim.model.editing.metadata import with_metadata
from odt_sim.model.editing.surgery import add_pair
from odt_sim.model.editing.tree import packed, unpacked
from odt_sim.model.foreign.roles import Corrections, Role, Roles, find_roles
from odt_sim.model.foreign.weights import Groups, described, in_order_of_use, inferred_loss
from odt_sim.model.reading.dataflow import Flow
from odt_sim.model.reading.flatbuffer import fingerprint
from odt_sim.model.reading.graph import Graph, Handle, Variable
from odt_sim.model.reading.graph_reader import damaged, has_metadata, read_graph
from odt_sim.model.reading.verification import verify
from odt_sim.model.weights import is_finite

JOIN = "if it is one of several files that form a model, join them: odt-sim join --help"
READING = ("parameters", "restore")
STATE = ("optimizer_state", "restore_optimizer_state")
LARGEST_SLOTS = 16  # slots without initial values, as a multiple of the weights


@dataclass(frozen=True, eq=False)
class Adaptation:
    """A file that devices can train.

    Attributes:
        content: Its bytes.
        roles: The roles of the file's own signatures; None if it has a manifest.
        notes: Sentences on what was found and added.
        unusable: The weights that start with NaN or infinity.
    """

    content: bytes
    roles: Roles | None
    notes: tuple[str, ...] = ()
    unusable: tuple[str, ...] = ()


def adapted(
    content: bytes,
    where: str,
    *,
    signatures: Corrections | None = None,
    groups: Groups | None = None,
    loss: str | None = None,
    from_logits: bool = True,
    flex: bool = False,
) -> Adaptation:
    """Return a foreign file with the contract's signatures; a file with a manifest stays unchanged.

    Args:
        content: The file's bytes.
        where: The file's name, for errors.
        signatures: Corrections of the roles, see `roles.find_roles`.
        groups: By group, the layers or the numbers of weights, see `layers.described`.
        loss: The loss that `train` minimizes, one of `manifest.LOSSES`; None infers it where it is certain.
        from_logits: Whether that loss takes the output of `infer` as logits.
        flex: Whether Flex ops are accepted.

    Raises:
        ModelError: The file cannot be trained, or a correction does not fit; the message says what to do.
    """
    if has_metadata(content, METADATA_NAME):
        if signatures or groups:
            key = "model.signatures" if signatures else "model.groups"
            raise ModelError(f"{where}: has a manifest that defines signatures and groups; leave out {key}")
        return Adaptation(content, None)
    graph = read_graph(content, where)
    if loss is not None and loss not in LOSSES:
        raise ModelError(f"{where}: unknown loss {loss!r}; expected one of {', '.join(LOSSES)}")
    roles = find_roles(graph, where, signatures)
    if reason := not_trainable(graph, roles, flex=flex):
        raise ModelError(f"{where}: {reason}")
    adapter = _Adapter(content, graph, roles, where)
    try:
        return adapter.adaptation(groups, loss, from_logits)
    except ModelError:
        raise
    except Exception as error:  # parts that the graph does not show may be damaged, and cause any exception
        raise damaged(where, error) from error


def not_trainable(graph: Graph, roles: Roles, *, flex: bool = False) -> str:
    """Return why a file does not train here and what would make it train; empty if it trains."""
    if roles.missing:
        joins = "" if any(entry.declared for entry in graph.signatures.values()) else f"; {JOIN}"
        return f"{roles.missing}; export a training step with odt_sim.export, or name it: +model.signatures.train=NAME{joins}"
    for role in ("train", "infer"):
        ops = graph.flex_ops(roles[role].signature)
        if ops and not flex:
            return (
                f"{roles[role].signature!r} contains Flex ops ({few(ops)}) that LiteRT cannot run; "
                "rewrite it: odt-sim deflex IN OUT"
            )
    train = roles["train"]
    if missing := [key for key in ("x", "y") if key not in train.inputs]:
        return f"{train.signature!r} has no input {missing[0]!r}; name it: +model.signatures.train.{missing[0]}=NAME"
    for own in (train, roles["infer"]):
        if unknown := sorted(set(graph.signatures[own.signature].inputs) - set(own.inputs.values())):
            return (
                f"{own.signature!r} takes an input {unknown[0]!r}, which odt_sim does not provide; export it "
                "without that input"
            )
    if not graph.signatures[train.signature].outputs:
        return f"{train.signature!r} returns nothing, which LiteRT cannot run; return the batch's mean loss"
    unset = _unset(graph, roles)
    if unset and "initialize" not in roles:
        return (
            f"{len(unset)} of its variables have no initial values, the first is {unset[0].name}; "
            "export it with initial values, or with a signature 'initialize'"
        )
    return ""


def _unset(graph: Graph, roles: Roles) -> list[Variable]:
    """Return the variables without an initial value that `train` or `infer` read, except for optimizer slots."""
    slots = set(slots_of(graph, roles))
    read = [name for role in ("train", "infer") for name in [roles[role].signature]]
    found = [v for v in graph.variables.values() if not v.initialized and set(v.read_by) & set(read)]
    return [v for v in found if v.handle not in slots]


def weights_of(graph: Graph, roles: Roles) -> list[Handle]:
    """Return the weights: the float32 variables that inference reads, in the order `a0..aN`.

    The order is the one of the file's own numbered signature (`a0`, `p0`, `weight_0`, ...), else the order of use.
    """
    infer = roles.flow("infer")
    read = graph.read_by(roles["infer"].signature)
    found = [handle for handle in read if graph.variables[handle].dtype == "float32"]
    used = in_order_of_use(infer, found)
    if "parameters" not in roles:
        return used
    numbered = _numbered(roles.flow("parameters"), lambda handle: graph.variables[handle].dtype == "float32")
    return [*numbered, *(handle for handle in used if handle not in numbered)] if set(numbered) & set(used) else used


def slots_of(graph: Graph, roles: Roles) -> list[Handle]:
    """Return the optimizer's slots: the variables that training sets and a signature reads, except for weights.

    The order is the one of the file's own `optimizer_state`, else the one of the step.
    """
    weights = set(weights_of(graph, roles))
    trained = graph.assigned_by(roles["train"].signature)
    slots = [handle for handle in trained if graph.variables[handle].read_by and handle not in weights]
    if STATE[0] not in roles.flows:
        return slots
    numbered = _numbered(roles.flows[STATE[0]], lambda handle: handle in slots)
    return [*numbered, *(handle for handle in slots if handle not in numbered)]


def _numbered(flow: Flow, wanted: Callable[[Handle], bool]) -> list[Handle]:
    """Return the wanted variables that a signature returns under names with one prefix and a number, in that order."""
    numbers = {name: re.fullmatch(r"(\D*)(\d+)", name) for name in flow.entry.outputs}
    prefixes = {match[1] for match in numbers.values() if match}
    own = {
        int(match[2]): handle
        for name, match in numbers.items()
        for handle in flow.of_output(name)
        if match and len(prefixes) == 1 and isinstance(handle, Handle) and wanted(handle)
    }
    return list(dict.fromkeys(own[number] for number in sorted(own)))


class _Adapter:
    """Makes the changes to one file."""

    def __init__(self, content: bytes, graph: Graph, roles: Roles, where: str) -> None:
        self._content, self._graph, self._roles, self._where = content, graph, roles, where
        self._weights = [graph.variables[handle] for handle in weights_of(graph, roles)]
        self._slots = [graph.variables[handle] for handle in slots_of(graph, roles)]
        self._notes: list[str] = []
        self._check_forms()

    def adaptation(self, groups: Groups | None, loss: str | None, from_logits: bool) -> Adaptation:
        manifest = self._manifest(groups, loss, from_logits)
        nan = tuple(v.name for v in self._weights if _unusable(v))
        model = unpacked(self._content)
        self._name_signatures(model)
        self._add_state(model, initialize=bool(nan or _unset(self._graph, self._roles)))
        content = packed(model)
        content = with_metadata(content, METADATA_NAME, manifest.to_json().encode())
        return Adaptation(content, self._roles, tuple(self._notes), () if "initialize" in self._roles else nan)

    def _check_forms(self) -> None:
        """Check that the host can store weights and slots."""
        if not self._weights:
            raise ModelError(f"{self._where}: inference reads no float32 variable, so there is nothing to train")
        for v in (*self._weights, *self._slots):
            if v.shape is None or min(v.shape, default=0) < 0 or v.dtype in (None, "string", "resource", "variant"):
                raise ModelError(
                    f"{self._where}: the variable {v.name} has no fixed shape or is not numeric; export it as numbers "
                    "of fixed shape"
                )
        unset = sum(v.size for v in self._slots if not v.initialized)
        if unset > LARGEST_SLOTS * (1024 + sum(v.size for v in self._weights)):
            raise ModelError(
                f"{self._where}: declares {unset:,} values of optimizer slots; it is damaged, export it again"
            )

    # --- signatures

    def _name_signatures(self, model: Any) -> None:
        train, infer = self._roles["train"], self._roles["infer"]
        index, inputs, outputs = self._canonical(infer)
        own = self._graph.signatures[infer.signature].outputs
        answer = infer.outputs["output"]
        kept = own if answer == "logits" or len(own) == 1 else {answer: outputs["output"]}
        surgery.add_view(model, "infer", index, inputs, kept)
        if "embed" in self._roles:
            self._name_chain(model, train)
            return
        index, inputs, outputs = self._canonical(train)
        others = self._graph.signatures[train.signature].outputs
        surgery.add_view(model, "train", index, inputs, {**_without(others, train.outputs), **outputs})

    def _canonical(self, role: Role) -> tuple[int, dict[str, int], dict[str, int]]:
        """Return a role's subgraph, and its tensors by canonical names."""
        entry = self._graph.signatures[role.signature]
        inputs = {key: entry.inputs[own] for key, own in role.inputs.items()}
        return entry.subgraph, inputs, {key: entry.outputs[own] for key, own in role.outputs.items()}

    def _name_chain(self, model: Any, train: Role) -> None:
        """Turn a step that takes features into one that takes the inputs of inference."""
        before, given, returned = self._canonical(self._roles["embed"])
        after, inputs, outputs = self._canonical(train)
        link = (returned["output"], inputs["x"])
        index, shift = surgery.add_chain(model, before, after, link, "train")
        rest = {key: tensor + shift for key, tensor in inputs.items() if key != "x"}
        surgery.add_view(model, "train", index, {**given, **rest}, {key: i + shift for key, i in outputs.items()})
        surgery.add_view(model, "embed", before, given, {"embedding": returned["output"]})
        self._notes.append(
            f"{train.signature!r} takes features, so each step runs {self._roles['embed'].signature!r} first"
        )

    # --- reading and writing

    def _add_state(self, model: Any, *, initialize: bool) -> None:
        added: list[str] = []
        initializers = [*self._graph.initializers]
        unset = [v for v in self._slots if not v.initialized]
        if unset:
            initializers.append(self._zeros(model, unset))
            self._notes.append(f"{len(unset)} optimizer slots have no initial values and start at zero")
        if initialize and "initialize" in self._roles:
            own = self._roles["initialize"].signature
            initializers.append(surgery.add_copy(model, self._graph.signatures[own].subgraph, "initialize"))
            self._notes.append(f"training starts from {own!r}")
        extended = len(initializers) > len(self._graph.initializers)
        if extended or not self._fits(*READING, "a", self._weights):
            added += add_pair(model, READING, "a", self._weights, initializers)
        if self._slots and (extended or not self._fits(*STATE, "s", self._slots)):
            added += add_pair(model, STATE, "s", self._slots, initializers)
        if added:
            self._notes.append(f"odt_sim adds {', '.join(added)}")

    def _zeros(self, model: Any, variables: list[Variable]) -> int:
        subgraph = surgery.NewSubgraph(model, "zero_slots")
        for variable in variables:
            subgraph.assign(variable, subgraph.zeros(variable))
        subgraph.sign(None)
        return subgraph.index

    def _fits(self, reader: str, writer: str, prefix: str, variables: list[Variable]) -> bool:
        """Return whether the file's own signatures read and write these variables in this order under these names."""
        if not {reader, writer} <= self._graph.signatures.keys():
            return False
        wanted = {f"{prefix}{i}": v.handle for i, v in enumerate(variables)}
        read, written = self._roles.flows[reader], self._roles.flows[writer]
        own = {name: next(iter(read.of_output(name)), None) for name in read.entry.outputs}
        if not own == wanted == written.copied() or not written.entry.outputs:
            return False
        tensors = read.graph.subgraphs[read.entry.subgraph].tensors
        shapes = [tensors[read.entry.outputs[name]].shape_signature for name in wanted]
        return shapes == [v.shape for v in variables]

    # --- manifest

    def _manifest(self, groups: Groups | None, loss: str | None, from_logits: bool) -> Manifest:
        if loss is None:
            found = inferred_loss(self._roles)
            loss, from_logits = found.name, found.from_logits
            self._notes.append(f"the loss is {loss}: {found.reason}" if loss else f"{found.reason}: set model.loss")
        if "loss" not in self._roles["train"].outputs:
            train = self._roles["train"].signature
            if loss is None:
                raise ModelError(
                    f"{self._where}: {train!r} returns no loss (a float32 number), and the loss cannot be inferred from "
                    "the graph; set it: model.loss=..., or name the output: +model.signatures.train.loss=NAME"
                )
            self._notes.append(f"{train!r} returns no loss, so it is computed by 'infer' before each step")
        flow = self._roles.flow("train")
        x = flow.graph.subgraphs[flow.entry.subgraph].tensors[flow.entry.inputs[self._roles["train"].inputs["x"]]]
        rows = x.shape_signature[0] if x.shape_signature else 0
        trained = self._graph.assigned_by(self._roles["train"].signature)
        return Manifest(
            name=Path(self._where).stem,
            parameters=described(self._weights, trained, groups, self._where),
            loss=loss,
            from_logits=from_logits,
            optimizer={},
            batch_size=rows if rows > 0 else DEFAULT_BATCH_SIZE,
        )


def _unusable(variable: Variable) -> bool:
    try:
        value = variable.initial.value() if variable.initial else np.zeros(1, np.float32)
    except ModelError:
        return False
    return not is_finite(np.asarray(value))


def _without(outputs: Mapping[str, int], renamed: Mapping[str, str]) -> dict[str, int]:
    """Return the outputs that keep their names: neither renamed nor in the way of a new name."""
    return {name: i for name, i in outputs.items() if name not in (*renamed.values(), *renamed)}


def tried(content: bytes, where: str, **options: Any) -> Adaptation:
    """Return an adapted file that LiteRT can run, verified in a subprocess.

    If LiteRT refuses to train with the declared shape of y, other shapes are tried: one number for each example, one
    column, and one column for each output of inference.

    Args:
        content: The file's bytes.
        where: The file's name, for errors.
        options: Further arguments of `adapted`.

    Raises:
        ModelError: The file cannot be trained, or LiteRT cannot run it with any of the shapes.
    """
    adaptation = adapted(content, where, **options)
    try:
        verify(adaptation.content, fingerprint(adaptation.content), where)
    except InvocationError:
        other = adaptation.roles and with_other_targets(content, where, adaptation.roles, options)
        if not other:
            raise
        return other
    return adaptation


def with_other_targets(content: bytes, where: str, roles: Roles, options: Mapping[str, Any]) -> Adaptation | None:
    """Return a file adapted with a shape of y with which LiteRT trains it; None if there is none; see `tried`."""
    train, infer = roles["train"], roles["infer"]
    graph = read_graph(content, where)
    tensors = graph.subgraph(train.signature).tensors
    index = graph.signatures[train.signature].inputs[train.inputs["y"]]
    output = graph.signatures[infer.signature].outputs[infer.outputs["output"]]
    declared = tensors[index].shape_signature
    columns = graph.subgraph(infer.signature).tensors[output].shape_signature[1:]
    subgraph = graph.signatures[train.signature].subgraph
    for shape in dict.fromkeys([declared[:1], (*declared[:1], *columns), (*declared[:1], 1)]):
        if shape == declared:
            continue
        other = adapted(with_shape(content, subgraph, index, shape), where, **options)
        try:
            verify(other.content, fingerprint(other.content), where)
        except ModelError:
            continue
        refused = f"{train.signature!r} rejects the declared shape of {train.inputs['y']!r}, {_text(declared)}"
        return replace(other, notes=(f"{refused}, but accepts {_text(shape)}", *other.notes))
    return None


def with_shape(content: bytes, subgraph: int, tensor: int, shape: tuple[int, ...]) -> bytes:
    """Return a file with another declared shape of one tensor; -1 is a size that is not fixed."""
    model = unpacked(content)
    changed = model.subgraphs[subgraph].tensors[tensor]
    changed.shape = np.array([max(size, 1) for size in shape], np.int32)
    changed.shapeSignature = np.array(shape, np.int32)
    return packed(model)


def _text(shape: tuple[int, ...]) -> str:
    return str(["?" if size < 0 else size for size in shape]).replace("'", "")
