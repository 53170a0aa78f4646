"""Join the `.tflite` files without signatures over which a model is spread into one trainable file.

The files are bottleneck, training of the head, and optimizer. They have no signatures, and their outputs often have no
telling names: tensors are matched by form (shape and dtype), and the weights among the optimizer's inputs are found by
running the optimizer.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray

from odt_sim._support.text import one_line, typed_line
from odt_sim.errors import ModelError
from odt_sim.model.editing import surgery
from odt_sim.model.editing.surgery import add_pair
from odt_sim.model.editing.tree import packed, unpacked
from odt_sim.model.foreign.adaptation import tried
from odt_sim.model.reading.dataflow import Flow, flow_of
from odt_sim.model.reading.graph import READS, Graph, Handle, Tensor, Variable
from odt_sim.model.reading.graph_reader import read_graph
from odt_sim.model.trainable import read_file

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
    form, found = bottleneck.form(bottleneck.outputs[0]), _forms(head, head.inputs)
    alike = [i for i in head.inputs if head.form(i) == form]
    if len(alike) != 1:
        raise ModelError(f"{head.where}: expected one {form} input, as {bottleneck.where} returns it; found {found}")
    losses = [i for i in head.outputs if head.form(i) in ("float32[]", "float32[1]")]
    if len(losses) != 1:
        raise ModelError(f"{head.where}: expected one output that is a loss, a float32 number; found {len(losses)}")
    [loss], [features] = losses, alike
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
            f"({', '.join(gradients)}), found {found}"
        )
    updates = _updates(optimizer, values)
    weights = tuple(Weight(head.name(i), i, gradients[form], *updates[form]) for form, i in values.items())
    states, rate = _rest(optimizer, weights)
    return Chain(
        features, targets[0], loss, _logits(head, features, targets[0], values.values()), weights, states, rate
    )


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

    def given(i: int, zeros: NDArray[Any]) -> NDArray[Any]:
        rest = zeros if zeros.shape else zeros + zeros.dtype.type(1)  # 1 for single numbers, such as a learning rate
        return value if i == tensor else rest

    outputs = optimizer.run(given)
    changed = [i for i in optimizer.outputs if np.any(outputs[i]) and outputs[i].shape]
    return changed[0] if len(changed) == 1 and np.array_equal(outputs[changed[0]], value) else None


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


def join(
    bottleneck: str | os.PathLike[str],
    train_head: str | os.PathLike[str],
    optimizer: str | os.PathLike[str],
    initialize: str | os.PathLike[str] | None = None,
) -> bytes:
    """Join files whose app keeps the head's weights and passes them to each file, and return one trainable file.

    Its variables are the head's weights and the optimizer's state. Its `train` runs the bottleneck, `train_head` and
    the optimizer, and sets the variables. Its `infer` returns the outputs that `train_head` computes before it uses the
    targets.

    Args:
        bottleneck: The file that returns the features of x.
        train_head: The file that takes features, targets and weights, and returns the loss and the weights' gradients.
        optimizer: The file that takes the weights, gradients and its state, if it has one, and returns the new weights
            and state. If it takes a learning rate, this becomes an input of `train`.
        initialize: The file that returns the initial weights; by default they are zeros.

    Raises:
        ModelError: A file cannot be read or run, the shapes do not chain, or the result does not train.
    """
    paths = {"bottleneck": bottleneck, "train_head": train_head, "optimizer": optimizer}
    parts = {role: part(role, read_file(path), str(path)) for role, path in paths.items()}
    chain = chained(*parts.values())
    values = dict[str, NDArray[Any]]()
    if initialize is not None:
        source = part("initialize", read_file(initialize), str(initialize))
        values = {source.form(i): value for i, value in source.run(lambda _, zeros: zeros).items()}
    try:
        content = _Joiner(parts, chain, values).content()
    except ModelError:
        raise
    except Exception as error:  # parts that the graphs do not show may be damaged, and cause any exception
        reason = typed_line(error)
        raise ModelError(f"{bottleneck}: one of the files is damaged ({reason}); copy or convert them again") from error
    where = f"{bottleneck}, joined"
    tried(content, where)
    return content


class _Joiner:
    """Writes the joined file."""

    def __init__(self, parts: Mapping[str, Part], chain: Chain, values: Mapping[str, NDArray[Any]]) -> None:
        self._parts, self._chain, self._model = parts, chain, surgery.empty()
        self._graphs = {role: surgery.adopted(self._model, unpacked(each.content)) for role, each in parts.items()}
        head, optimizer = parts["train_head"], parts["optimizer"]
        self._weights = [_variable(f"head/{w.name}", head, w.value) for w in chain.weights]
        self._states = [_variable(f"optimizer/state{i}", optimizer, s) for i, (s, _) in enumerate(chain.states)]
        self._values = [values.get(head.form(w.value)) for w in chain.weights]
        if values and any(value is None for value in self._values):
            forms = ", ".join(head.form(w.value) for w in chain.weights)
            raise ModelError(f"{head.where}: its weights are {forms}, but 'initialize' returns {', '.join(values)}")

    def content(self) -> bytes:
        """Return the file's bytes."""
        self._train, self._infer = (surgery.NewSubgraph(self._model, name) for name in ("train", "infer"))
        start = [self._initializer()]
        self._write_train(start)
        self._write_infer(start)
        add_pair(self._model, ("parameters", "restore"), "a", self._weights, start)
        if self._states:
            names = ("optimizer_state", "restore_optimizer_state")
            add_pair(self._model, names, "s", self._states, start)
        return packed(self._model)

    def _initializer(self) -> int:
        subgraph = surgery.NewSubgraph(self._model, "initialize")
        for variable, value in zip(self._weights, self._values, strict=True):
            constant = subgraph.zeros(variable) if value is None else subgraph.constant(variable.name, value)
            subgraph.assign(variable, constant)
        for variable in self._states:
            subgraph.assign(variable, subgraph.zeros(variable))
        subgraph.sign(None)
        return subgraph.index

    def _write_train(self, start: Sequence[int]) -> None:
        chain, new = self._chain, self._train
        optimizer = self._graphs["optimizer"]
        new.call_once(start)
        features = self._features(new)
        y = new.input_like("y", self._graphs["train_head"], chain.y)
        weights = [new.read(variable) for variable in self._weights]
        gradients = {w.gradient: w for w in chain.weights}
        given = {
            chain.features: features,
            chain.y: y,
            **{w.value: i for w, i in zip(chain.weights, weights, strict=True)},
        }
        head = new.inline(self._graphs["train_head"], given, [chain.loss, *gradients])
        given = {w.before: i for w, i in zip(chain.weights, weights, strict=True)}
        given |= {w.slope: head[w.gradient] for w in chain.weights}
        given |= {s: new.read(v) for v, (s, _) in zip(self._states, chain.states, strict=True)}
        if chain.learning_rate is not None:
            given[chain.learning_rate] = new.input_like("learning_rate", optimizer, chain.learning_rate)
        after = [*(w.after for w in chain.weights), *(state for _, state in chain.states)]
        updated = new.inline(optimizer, given, after)
        for variable, tensor in zip([*self._weights, *self._states], after, strict=True):
            new.assign(variable, updated[tensor])
        new.output("loss", head[chain.loss])
        new.sign("train")

    def _write_infer(self, start: Sequence[int]) -> None:
        chain, new = self._chain, self._infer
        new.call_once(start)
        given = {chain.features: self._features(new)}
        given |= {w.value: new.read(v) for w, v in zip(chain.weights, self._weights, strict=True)}
        new.output("output", new.inline(self._graphs["train_head"], given, [chain.logits])[chain.logits])
        new.sign("infer")

    def _features(self, new: surgery.NewSubgraph) -> int:
        part, graph = self._parts["bottleneck"], self._graphs["bottleneck"]
        [x], [features] = part.inputs, part.outputs
        return new.inline(graph, {x: new.input_like("x", graph, x)}, [features])[features]


def _variable(name: str, part: Part, index: int) -> Variable:
    tensor = part.tensor(index)
    return Variable(Handle("", name), tensor.shape, tensor.dtype, (), (), True, None)
