"""Join the `.tflite` files without signatures over which a model is spread into one trainable file."""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from numpy.typing import NDArray

from odt_sim._support.text import typed_line
from odt_sim.errors import ModelError
from odt_sim.model import surgery
from odt_sim.model.adaptation import adapted
from odt_sim.model.chaining import Chain, Part, chained, part
from odt_sim.model.editing import packed, unpacked
from odt_sim.model.graph import Handle, Variable
from odt_sim.model.state_signatures import add_pair
from odt_sim.model.trainable import read_file
from odt_sim.model.trial import tried


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
    values = {} if initialize is None else _initial(part("initialize", read_file(initialize), str(initialize)))
    try:
        content = _Joiner(parts, chain, values).content()
    except ModelError:
        raise
    except Exception as error:  # parts that the graphs do not show may be damaged, and cause any exception
        reason = typed_line(error)
        raise ModelError(f"{bottleneck}: one of the files is damaged ({reason}); copy or convert them again") from error
    where = f"{bottleneck}, joined"
    tried(content, where, partial(adapted, where=where))
    return content


def _initial(initialize: Part) -> dict[str, NDArray[Any]]:
    """Return the initial weights by form (dtype and shape)."""
    outputs = initialize.run(lambda _, zeros: zeros)
    return {initialize.form(i): value for i, value in outputs.items()}


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
