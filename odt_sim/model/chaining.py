"""Matching of the tensors of a model in several files: bottleneck, training of the head, optimizer.

Such files have no signatures, and their outputs often have no telling names. Tensors are matched by form (shape and
dtype), and the weights among the optimizer's inputs are found by running the optimizer.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray

from odt_sim._support.text import one_line
from odt_sim.errors import ModelError
from odt_sim.model.dataflow import Flow, flow_of
from odt_sim.model.graph import READS, Graph, Tensor
from odt_sim.model.graph_reader import read_graph

GRADIENT = r"(d|g|grad|gradient|delta)s?_.*|.*grad.*"
CONVERTER = r"^serving_default_|:\d+$"
"""The parts that the converter adds to the names of inputs."""


@dataclass(frozen=True, eq=False)
class Part:
    """One of the files: a single function with tensors that are identified by index.

    Attributes:
        role: Its role, such as `bottleneck`.
        where: The file's name, for errors.
        content: Its bytes.
        graph: Its graph.
    """

    role: str
    where: str
    content: bytes
    graph: Graph

    @property
    def inputs(self) -> tuple[int, ...]:
        """The inputs' tensors in the file's order."""
        return self.graph.subgraphs[0].inputs

    @property
    def outputs(self) -> tuple[int, ...]:
        """The outputs' tensors in the file's order."""
        return self.graph.subgraphs[0].outputs

    @property
    def flow(self) -> Flow:
        """The dependencies of its tensors."""
        return flow_of(self.graph, next(iter(self.graph.signatures)))

    def tensor(self, index: int) -> Tensor:
        """Return a tensor."""
        return self.graph.subgraphs[0].tensors[index]

    def form(self, index: int) -> str:
        """Return a tensor's dtype and shape as one text."""
        return self.tensor(index).text

    def name(self, index: int) -> str:
        """Return the author's name of an input."""
        return re.sub(CONVERTER, "", self.tensor(index).name)

    def run(self, values: Callable[[int, NDArray[Any]], Any]) -> dict[int, NDArray[Any]]:
        """Run it once on LiteRT.

        Args:
            values: Returns the value of an input, given its tensor and zeros of its form.

        Returns:
            The outputs by their tensors.

        Raises:
            ModelError: LiteRT cannot run it.
        """
        try:
            interpreter = Interpreter(model_content=self.content, num_threads=1)
            interpreter.allocate_tensors()
            for detail in interpreter.get_input_details():
                zeros = np.zeros(detail["shape"], detail["dtype"])
                interpreter.set_tensor(detail["index"], values(detail["index"], zeros))
            interpreter.invoke()
            return {index: interpreter.get_tensor(index) for index in self.outputs}
        except (RuntimeError, ValueError, TypeError) as error:
            reason = one_line(error)
            raise ModelError(f"{self.where}: LiteRT cannot run the {self.role} ({reason})") from error


@dataclass(frozen=True, eq=False)
class Weight:
    """A weight of the head, by its tensors in the files.

    Attributes:
        name: The name of its input in `train_head`.
        value: Its input in `train_head`.
        gradient: Its gradient among the outputs of `train_head`.
        before: Its input in the optimizer.
        slope: The gradient's input in the optimizer.
        after: Its new value among the outputs of the optimizer.
    """

    name: str
    value: int
    gradient: int
    before: int
    slope: int
    after: int


@dataclass(frozen=True, eq=False)
class Chain:
    """The connections between the files; all numbers are tensors of their files.

    Attributes:
        features: The input of `train_head` that the bottleneck returns.
        y: The targets, an input of `train_head`.
        loss: The loss, an output of `train_head`.
        logits: The tensor of `train_head` that inference returns.
        weights: The head's weights.
        states: The optimizer's state: an input and the output that replaces it.
        learning_rate: The optimizer's input; None if it is a constant there.
    """

    features: int
    y: int
    loss: int
    logits: int
    weights: tuple[Weight, ...]
    states: tuple[tuple[int, int], ...]
    learning_rate: int | None


def part(role: str, content: bytes, where: str) -> Part:
    """Read one of the files.

    Raises:
        ModelError: It is not a `.tflite` file, has variables or control flow, or needs Flex ops.
    """
    graph = read_graph(content, where)
    ops = graph.subgraphs[0].ops
    if len(graph.subgraphs) > 1 or any(op.kind in READS for op in ops):
        raise ModelError(
            f"{where}: expected a {role} with a single function and no variables, which is what join can combine"
        )
    flex = sorted({op.kind for op in ops if op.flex})
    if flex:
        raise ModelError(
            f"{where}: needs the Flex op {flex[0]}, which LiteRT cannot run; convert it with built-in ops only"
        )
    return Part(role, where, content, graph)


def chained(bottleneck: Part, head: Part, optimizer: Part) -> Chain:
    """Find the connections between the files.

    Raises:
        ModelError: Their shapes do not chain, or chain in more than one way.
    """
    if len(bottleneck.inputs) != 1 or len(bottleneck.outputs) != 1:
        counts = f"{len(bottleneck.inputs)} inputs and {len(bottleneck.outputs)} outputs"
        raise ModelError(f"{bottleneck.where}: expected a bottleneck with one input and one output, found {counts}")
    features = _only(
        head, head.inputs, bottleneck.form(bottleneck.outputs[0]), f"input, as {bottleneck.where} returns it"
    )
    loss = _loss(head)
    gradients = {head.form(i): i for i in head.outputs if i != loss}
    if not gradients or len(gradients) < len(head.outputs) - 1:
        forms = ", ".join(head.form(i) for i in head.outputs)
        raise ModelError(f"{head.where}: expected a loss and gradients of distinct shapes, found {forms}")
    others = [i for i in head.inputs if i != features]
    targets = [i for i in others if head.form(i) not in gradients]
    values = {head.form(i): i for i in others if head.form(i) in gradients}
    if len(targets) != 1 or len(values) != len(others) - 1 or len(values) != len(gradients):
        raise ModelError(
            f"{head.where}: expected the inputs features, targets and one weight per gradient "
            f"({', '.join(gradients)}), found {_forms(head, head.inputs)}"
        )
    updates = _updates(optimizer, values)
    weights = tuple(Weight(head.name(i), i, gradients[form], *updates[form]) for form, i in values.items())
    states, rate = _rest(optimizer, weights)
    return Chain(
        features, targets[0], loss, _logits(head, features, targets[0], values.values()), weights, states, rate
    )


def _loss(head: Part) -> int:
    numbers = [i for i in head.outputs if head.form(i) in ("float32[]", "float32[1]")]
    if len(numbers) != 1:
        raise ModelError(f"{head.where}: expected one output that is a loss, a float32 number; found {len(numbers)}")
    return numbers[0]


def _only(part: Part, tensors: Sequence[int], form: str, what: str) -> int:
    found = [i for i in tensors if part.form(i) == form]
    if len(found) != 1:
        raise ModelError(f"{part.where}: expected one {form} {what}; found {_forms(part, tensors)}")
    return found[0]


def _logits(head: Part, features: int, y: int, weights: Any) -> int:
    """Return the first tensor that depends on the features and all weights, but not on the targets."""
    subgraph, flow = head.graph.subgraphs[0], head.flow
    names = {i: flow.sources[i] for i in (features, y, *weights)}
    wanted = frozenset().union(*(names[i] for i in (features, *weights)))
    for op in subgraph.ops:
        for tensor in op.outputs:
            if wanted <= flow.sources.get(tensor, frozenset()) and not names[y] & flow.sources[tensor]:
                return tensor
    raise ModelError(
        f"{head.where}: no tensor depends on features and weights but not on targets, so it has no inference output"
    )


def _updates(optimizer: Part, forms: Mapping[str, int]) -> dict[str, tuple[int, int, int]]:
    """Return each weight's input, its gradient's input, and the output that is its new value, by form.

    If all other inputs are 0, a weight stays unchanged and changes no other output; a gradient and a state are scaled.
    """
    found: dict[str, list[tuple[int, int]]] = {form: [] for form in forms}
    for tensor in optimizer.inputs:
        if optimizer.form(tensor) in found:
            after = _unchanged(optimizer, tensor)
            found[optimizer.form(tensor)] += [] if after is None else [(tensor, after)]
    updates = {}
    for form, pairs in found.items():
        rest = [i for i in optimizer.inputs if optimizer.form(i) == form and i not in [before for before, _ in pairs]]
        if len(rest) > 1:
            rest = [i for i in rest if re.fullmatch(GRADIENT, optimizer.name(i), re.I)]
        if len(pairs) != 1 or len(rest) != 1:
            inputs = _forms(optimizer, optimizer.inputs)
            raise ModelError(
                f"{optimizer.where}: expected one weight {form} and its gradient, found {inputs}; "
                "if the optimizer has state, name the gradients d_..."
            )
        updates[form] = (pairs[0][0], rest[0], pairs[0][1])
    return updates


def _unchanged(optimizer: Part, tensor: int) -> int | None:
    """Return the only output that an input changes if all others are 0, provided that the output equals the input."""
    value = np.random.default_rng(0).normal(size=optimizer.tensor(tensor).shape).astype(np.float32)
    outputs = optimizer.run(lambda i, zeros: value if i == tensor else _idle(zeros))
    changed = [i for i in optimizer.outputs if np.any(outputs[i]) and outputs[i].shape]
    return changed[0] if len(changed) == 1 and np.array_equal(outputs[changed[0]], value) else None


def _idle(zeros: NDArray[Any]) -> NDArray[Any]:
    """Return ones for single numbers, such as a learning rate, and else zeros."""
    return zeros if zeros.shape else zeros + zeros.dtype.type(1)


def _rest(optimizer: Part, weights: Sequence[Weight]) -> tuple[tuple[tuple[int, int], ...], int | None]:
    """Return the pairs of the optimizer's state, and the learning rate."""
    known = {i for w in weights for i in (w.before, w.slope)}
    left = [i for i in optimizer.inputs if i not in known]
    flow, states = optimizer.flow, []
    for after in (i for i in optimizer.outputs if i not in {w.after for w in weights}):
        alike = [i for i in left if optimizer.form(i) == optimizer.form(after)]
        before = [i for i in alike if flow.sources[i] & flow.sources.get(after, frozenset())]
        if len(before) != 1:
            raise ModelError(f"{optimizer.where}: cannot tell which input the output {optimizer.form(after)} replaces")
        states.append((before[0], after))
    rates = [i for i in left if i not in [before for before, _ in states]]
    repeated = Counter(before for before, _ in states).most_common(1)
    if len(rates) > 1 or any(optimizer.form(i) != "float32[]" for i in rates) or (repeated and repeated[0][1] > 1):
        raise ModelError(
            f"{optimizer.where}: expected weights, gradients, states and at most a learning rate float32[], also found "
            f"{_forms(optimizer, rates)}"
        )
    return tuple(states), rates[0] if rates else None


def _forms(part: Part, tensors: Sequence[int]) -> str:
    return ", ".join(f"{part.name(i)} {part.form(i)}" for i in tensors) or "none"
