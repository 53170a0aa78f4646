"""The roles of a foreign `.tflite` file's signatures, found from names, shapes and the graph."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from odt_sim.errors import ModelError
from odt_sim.model.contract.names import parts
from odt_sim.model.reading.dataflow import Flow, flow_of
from odt_sim.model.reading.graph import Graph, Handle, Tensor

Certainty = Literal["certain", "likely", "a guess", "given"]
Corrections = Mapping[str, str | Mapping[str, str]]

INPUTS = {  # the names that authors give to an input, by its canonical name
    "x": r"x|xs?_?(batch|input)?|features?|inputs?|data|images?|image_batch|samples?|bottleneck|embeddings?|tokens?",
    "y": r"y|ys?_?(batch|true)?|labels?|targets?|target_ids|classes|outputs?|ground_?truth|expected",
    "sample_weight": r"sample_?weights?|example_?weights?",
    "learning_rate": r"learning_?rate|lr|rate|step_?size|eta",
    "mu": r"mu",
}
LOSS = r"(.*_)?(loss|cost|l|error|objective)"
METRIC = r"(.*_)?(acc(uracy)?|precision|recall|f1|auc|metrics?|mae|count|total|steps?)"
OUTPUT = ("logits", "output", "result", "outputs", "predictions", "prediction", "probabilities", "scores")
NAMES = {  # the names that authors give to a signature, the most telling first
    "train": (r"train", r"train_?(step|batch|epoch|model)?|fit|training|learn|update", r".*train.*"),
    "infer": (r"infer", r"infer(ence)?|predict(ion)?|forward|classify|call|serving_default", r".*(infer|predict).*"),
    "parameters": (r"parameters", r"get_?(weights|parameters|params|variables)", r".*(get|read|export).*"),
    "restore": (r"restore", r"set_?(weights|parameters|params|variables)|load", r".*(set|write|import|restore|load).*"),
    "save": (r"save", r"save_?\w*", r".*(save|store|export).*"),
    "initialize": (r"initialize", r"init\w*|reset\w*", r".*(init|reset).*"),
    "evaluate": (r"evaluate", r"eval\w*|test\w*|compute_?loss|validate|loss", r".*(eval|loss|test|valid).*"),
    "embed": (r"embed", r"load|bottleneck|extract\w*|features?|encode\w*", r".*(embed|feature|bottleneck).*"),
}
TAKEN = {  # what a correction may name, besides the signature's own name
    "train": (*INPUTS, "loss"),
    "infer": ("x", "output"),
    "embed": ("x", "output"),
}
LEAST = {"train": 2, "infer": 1, "embed": 1}
"""The least number of inputs of a signature, by role."""


@dataclass(frozen=True)
class Role:
    """A signature and the role it plays.

    Attributes:
        role: `train`, `infer`, `embed`, `evaluate`, `parameters`, `restore`, `save`, `load` (a checkpoint's path) or
            `initialize`.
        signature: The file's own name of the signature.
        inputs: The file's own names of inputs by canonical ones: `x`, `y`, `sample_weight`, `learning_rate`, `mu`.
        outputs: The file's own names of outputs by canonical ones: `loss` or `output`.
        certainty: How sure the finding is; `given` for a correction.
        reasons: The reasons for this role.
    """

    role: str
    signature: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    certainty: Certainty = "certain"
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Roles:
    """The roles in a file.

    Attributes:
        found: The roles by name.
        flows: The dependencies in each signature.
        missing: Why there is no `train` or no `infer`; empty if both exist.
    """

    found: Mapping[str, Role]
    flows: Mapping[str, Flow]
    missing: str = ""

    def __getitem__(self, role: str) -> Role:
        """Return a role that the file has."""
        return self.found[role]

    def __contains__(self, role: str) -> bool:
        """Return whether the file has a role."""
        return role in self.found

    def flow(self, role: str) -> Flow:
        """Return the dependencies in a role's signature."""
        return self.flows[self.found[role].signature]


def find_roles(graph: Graph, where: str, corrections: Corrections | None = None) -> Roles:
    """Find the roles of a file's signatures.

    Args:
        graph: The file's graph.
        where: The file's name, for errors.
        corrections: By role, a signature's name, or a mapping with `name` and the file's own names of inputs and outputs.

    Raises:
        ModelError: A correction names a role, signature, input or output that does not exist.
    """
    given = _checked(graph, where, corrections or {})
    finder = _Finder(graph, given)
    return finder.roles()


class _Finder:
    """Finds one role after the other; later ones depend on what `train` updates and `infer` reads."""

    def __init__(self, graph: Graph, given: Mapping[str, Mapping[str, str]]) -> None:
        self._graph, self._given = graph, given
        self._flows = {name: flow_of(graph, name) for name in graph.signatures}
        self._found: dict[str, Role] = {}

    def roles(self) -> Roles:
        missing = ""
        self._choose("train", self._trains, "it updates {n} variables from its inputs and their old values")
        known = "train" in self._found
        reads = "it reads {n} of the variables that training updates, and sets none"
        self._choose("infer", self._infers, reads if known else "it takes one input and sets no variable")
        if "train" not in self._found:
            updates = "signature updates a variable from its inputs and its old value"
            missing = f"inference only: {f'no {updates}' if self._graph.variables else 'it has no variables'}"
        elif "infer" not in self._found:
            missing = self._why_not_inferred()
        else:
            self._choose("embed", self._embeds, "it returns the input of the training step")
            self._name_train()
        self._name_infer()
        for role, rank, reason in (
            ("parameters", self._hands_out, "it returns {n} variables and takes no inputs"),
            ("restore", self._sets, "it sets {n} variables from inputs of their shapes"),
            ("initialize", self._initializes, "it sets {n} variables and takes no inputs"),
            ("evaluate", self._evaluates, "it takes two inputs, returns numbers and sets nothing"),
            ("save", self._saves, "it reads {n} variables and takes a path"),
            ("load", self._loads, "it sets {n} variables and takes a path"),
        ):
            self._choose(role, rank, reason)
        return Roles(self._found, self._flows, missing)

    def _choose(self, role: str, rank: Callable[[Flow], int], reason: str) -> None:
        """Choose the signature that ranks highest, then by name, then by the file's order."""
        if "name" in self._given.get(role, {}):
            self._found[role] = Role(role, self._given[role]["name"], certainty="given", reasons=("given",))
            return
        taken = {found.signature for found in self._found.values()}
        ranks = {name: rank(flow) for name, flow in self._flows.items() if name not in taken}
        best = max(ranks.values(), default=0)
        candidates = [name for name, found in ranks.items() if found == best > 0]
        named = {name: _name_rank(role, name) for name in candidates}
        if not candidates:
            return
        chosen = max(candidates, key=lambda name: named[name])
        rivals = [name for name in candidates if name != chosen]
        unique = not rivals or all(named[name] < named[chosen] for name in rivals)
        certainty: Certainty = "a guess" if not unique else "certain" if named[chosen] and not rivals else "likely"
        why = [reason.format(n=best)]
        if named[chosen]:
            why.append(
                "its name indicates it"
                if not rivals
                else f"its name indicates it more clearly than {', '.join(rivals)}"
            )
        elif rivals:
            why.append(f"so does {', '.join(rivals)}")
        self._found[role] = Role(role, chosen, certainty=certainty, reasons=tuple(why))

    # --- ranks: 0 for a signature that cannot play the role

    def _trains(self, flow: Flow) -> int:
        return len(flow.updated()) if self._rows(flow) else 0

    def _infers(self, flow: Flow) -> int:
        if flow.assigned or len(flow.entry.inputs) != 1 or not self._rows(flow):
            return 0
        trained = set(self._trained())
        read = [trained & flow.of_output(name) for name in flow.entry.outputs if self._is_rows(flow, name)]
        if "train" not in self._found:
            return int(any(flow.entry.outputs))
        return max(map(len, read), default=0)

    def _embeds(self, flow: Flow) -> int:
        """Rank a signature that takes the input of `infer` and returns an input of `train`."""
        train, infer = (self._flows[self._found[role].signature] for role in ("train", "infer"))
        x = _form(infer, next(iter(infer.entry.inputs.values())))
        if any(_form(train, i) == x for i in train.entry.inputs.values()) or flow.assigned:
            return 0
        takes = [_form(flow, i) for i in flow.entry.inputs.values()]
        returns = [_form(flow, i) for i in flow.entry.outputs.values()]
        wanted = [_form(train, i) for i in self._rows(train).values()]
        return int(takes == [x] and any(form in wanted for form in returns))

    def _hands_out(self, flow: Flow) -> int:
        if flow.entry.inputs or flow.assigned:
            return 0
        outputs = [flow.of_output(name) for name in flow.entry.outputs]
        handed = {handle for found in outputs if len(found) == 1 for handle in found if isinstance(handle, Handle)}
        shapes = {_tensor(flow, i).shape for i in flow.entry.outputs.values()}
        fit = [handle for handle in handed if self._graph.variables[handle].shape in shapes]
        return len(fit) if self._weights() & handed else 0

    def _sets(self, flow: Flow) -> int:
        numbers = all(_tensor(flow, i).dtype != "string" for i in flow.entry.inputs.values())
        copied = set(flow.copied().values()) if numbers and not flow.updated() else set()
        return len(copied) if copied & self._weights() else 0

    def _initializes(self, flow: Flow) -> int:
        constant = [handle for handle, found in flow.assigned.items() if not found]
        return len(constant) if not flow.entry.inputs else 0

    def _evaluates(self, flow: Flow) -> int:
        scalars = [i for i in flow.entry.outputs.values() if _tensor(flow, i).shape in ((), (1,))]
        return int(len(self._rows(flow)) >= 2 and bool(scalars) and not flow.assigned)

    def _saves(self, flow: Flow) -> int:
        read = self._graph.read_by(flow.entry.name)
        return len(read) if self._takes_path(flow) and not flow.assigned else 0

    def _loads(self, flow: Flow) -> int:
        return len(flow.assigned) if self._takes_path(flow) else 0

    # --- inputs and outputs

    def _name_train(self) -> None:
        """Find out which input of the training step is x, y, the learning rate, ..., and which output is the loss."""
        role, given = self._found["train"], self._given.get("train", {})
        flow = self._flows[role.signature]
        infer = self._flows[self._found["infer"].signature]
        x_form = _form(infer, next(iter(infer.entry.inputs.values())))
        if "embed" in self._found:
            returned = self._flows[self._found["embed"].signature]
            taken = [_form(flow, i) for i in flow.entry.inputs.values()]
            forms = [_form(returned, i) for i in returned.entry.outputs.values()]
            x_form = next((form for form in forms if form in taken), x_form)
        inputs = {key: given[key] for key in INPUTS if key in given}
        reasons = list(role.reasons)

        def left() -> list[str]:
            return [name for name in flow.entry.inputs if name not in inputs.values()]

        for key in ("learning_rate", "mu", "sample_weight"):
            match = [name for name in left() if re.fullmatch(INPUTS[key], name, re.I)]
            if key not in inputs and match and (key == "sample_weight" or _count(flow, match[0]) == 1):
                inputs[key] = match[0]
        rows = [name for name in left() if name in self._rows(flow)]
        if "x" not in inputs:
            alike = [name for name in rows if _form(flow, flow.entry.inputs[name]) == x_form] or rows
            named = [name for name in alike if re.fullmatch(INPUTS["x"], name, re.I)]
            if alike:
                inputs["x"] = (named or alike)[0]
                reasons.append(f"its {inputs['x']!r} has the shape and type of the inference input")
        rows = [name for name in rows if name in left()]
        if "y" not in inputs and rows:
            named = [name for name in rows if re.fullmatch(INPUTS["y"], name, re.I)]
            inputs["y"] = (named or rows)[0]
        loss = given.get("loss") or self._loss(flow)
        outputs = {"loss": loss} if loss else {}
        self._found["train"] = replace(role, inputs=inputs, outputs=outputs, reasons=tuple(reasons))

    def _loss(self, flow: Flow) -> str | None:
        """Return the output that is the loss: the first number named like one, else the first not named as a metric."""
        numbers = [
            name
            for name, i in flow.entry.outputs.items()
            if _tensor(flow, i).dtype == "float32" and _count_of(_tensor(flow, i)) == 1
        ]
        called = [name for name in numbers if re.fullmatch(LOSS, name, re.I)]
        others = [name for name in numbers if not re.fullmatch(METRIC, name, re.I)]
        return next(iter(called or others), None)

    def _name_infer(self) -> None:
        for role in ("infer", "embed"):
            if role in self._found:
                flow, given = self._flows[self._found[role].signature], self._given.get(role, {})
                output = given.get("output") or self._output(role, flow)
                x = given.get("x") or next(iter(flow.entry.inputs))
                self._found[role] = replace(self._found[role], inputs={"x": x}, outputs={"output": output})

    def _output(self, role: str, flow: Flow) -> str:
        names = [name for name in flow.entry.outputs if self._is_rows(flow, name)] or list(flow.entry.outputs)
        if role == "embed":
            train = self._flows[self._found["train"].signature]
            forms = [_form(train, i) for i in train.entry.inputs.values()]
            names = [name for name in names if _form(flow, flow.entry.outputs[name]) in forms] or names
        return next((name for wanted in OUTPUT for name in names if name.lower() == wanted), names[0])

    def _trained(self) -> tuple[Handle, ...]:
        return self._flows[self._found["train"].signature].updated() if "train" in self._found else ()

    def _weights(self) -> set[Handle]:
        """Return the variables that training updates and inference reads; if none, all that training updates."""
        trained, infer = set(self._trained()), self._found.get("infer")
        return (trained & set(self._graph.read_by(infer.signature)) if infer else trained) or trained

    def _rows(self, flow: Flow) -> dict[str, int]:
        """Return the inputs with a batch axis."""
        return {
            name: i
            for name, i in flow.entry.inputs.items()
            if _tensor(flow, i).shape and _tensor(flow, i).dtype not in ("string", "resource", "variant")
        }

    def _is_rows(self, flow: Flow, output: str) -> bool:
        """Return whether an output has a row for each example: it is float32, has axes and depends on an input."""
        tensor = _tensor(flow, flow.entry.outputs[output])
        depends = any(isinstance(source, str) for source in flow.of_output(output))
        return tensor.dtype == "float32" and (bool(tensor.shape) or depends)

    def _takes_path(self, flow: Flow) -> bool:
        return [_tensor(flow, i).dtype for i in flow.entry.inputs.values()] == ["string"]

    def _why_not_inferred(self) -> str:
        trained = set(self._trained())
        several = [
            f"{name!r} takes {', '.join(flow.entry.inputs)}"
            for name, flow in self._flows.items()
            if len(flow.entry.inputs) > 1 and not flow.assigned and trained & set(self._graph.read_by(name))
        ]
        why = (
            f"; in a file of another tool, inference must take one input, but {' and '.join(several)}"
            if several
            else ""
        )
        return f"no signature runs inference with the variables that {self._found['train'].signature!r} trains{why}"


def _checked(graph: Graph, where: str, corrections: Corrections) -> dict[str, dict[str, str]]:
    """Return the corrections as mappings, checked."""
    checked: dict[str, dict[str, str]] = {}
    for role, value in corrections.items():
        if role not in NAMES:
            raise ModelError(f"{where}: model.signatures: unknown role {role!r}; expected one of {', '.join(NAMES)}")
        names: dict[str, Any] = {"name": value} if isinstance(value, str) else dict(value)
        checked[role] = names
        signature = names.get("name", role)
        key = f"{where}: model.signatures.{role}"
        if signature not in graph.signatures:
            found = ", ".join(graph.signatures)
            raise ModelError(f"{key}: no signature {signature!r}, found {found}; set its name")
        names["name"] = signature
        entry = graph.signatures[signature]
        if len(entry.inputs) < LEAST.get(role, 0):
            found = ", ".join(entry.inputs) or "none"
            raise ModelError(f"{key}: {signature!r} takes too few inputs ({found}); name another signature")
        if role in ("infer", "embed") and len(parts(entry.inputs, "x")) < len(entry.inputs) > 1:
            found = ", ".join(entry.inputs)
            raise ModelError(
                f"{key}: {signature!r} takes several inputs ({found}), expected one; name another signature"
            )
        for canonical, own in names.items():
            if canonical != "name":
                allowed = TAKEN.get(role, ())
                if canonical not in allowed:
                    raise ModelError(f"{key}: unknown {canonical!r}; expected one of name, {', '.join(allowed)}")
                side = entry.outputs if canonical in ("loss", "output") else entry.inputs
                if own not in side:
                    kind = "output" if side is entry.outputs else "input"
                    found = ", ".join(side) or "none"
                    raise ModelError(f"{key}.{canonical}: {signature!r} has no {kind} {own!r}, found {found}")
    return checked


def _name_rank(role: str, name: str) -> int:
    patterns: Sequence[str] = NAMES.get(role, NAMES["restore"])
    matching = (len(patterns) - i for i, pattern in enumerate(patterns) if re.fullmatch(pattern, name, re.I))
    return next(matching, 0)


def _tensor(flow: Flow, index: int) -> Tensor:
    return flow.graph.subgraphs[flow.entry.subgraph].tensors[index]


def _form(flow: Flow, index: int) -> tuple[tuple[int, ...], str]:
    """Return the shape of one example and the dtype."""
    tensor = _tensor(flow, index)
    return tensor.shape_signature[1:], tensor.dtype


def _count(flow: Flow, name: str) -> int:
    return _count_of(_tensor(flow, flow.entry.inputs[name]))


def _count_of(tensor: Tensor) -> int:
    count = 1
    for size in tensor.shape_signature:
        count *= size
    return count
