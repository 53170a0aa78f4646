"""Several training steps in one call: a copy of a file, in memory, whose steps are also there many times in a row.

A small model's step takes less time than the call around it. Each added signature runs the ops of the file's own step, in
their order, as often as its number of `STEPS` says, so that weights and losses are those of single calls, to the bit.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any

from odt_sim.model.engine_file import EngineFile, own_file
from odt_sim.model.graph_reader import damaged
from odt_sim.model.matrix_products import flatten_products
from odt_sim.model.surgery import OPS, NewSubgraph, packed, unpacked
from odt_sim.model.trainable import TrainableModel

STEPS = (16, 8, 2)
"""The numbers of steps of a call, the largest first; a training takes the largest that its rest fills."""

MOST_OPS = 160
"""Ops of a step; more need more memory than their calls cost time."""

MOST_OPS_OF_FILE = 500
"""Ops of all signatures; unpacking and packing a file takes 0.15 to 0.4 ms for each, in every process that trains."""

MOST_PRODUCTS = 1 << 21
"""Trainable weights times the rows of a batch: about 0.2 ms a step, above which the call does not count."""

INPUTS = frozenset({"x", "embedding", "y", "sample_weight", "learning_rate", "mu"})
"""What a step may take; models of several inputs or of further ones take single steps."""

CONTROL = frozenset({"IF", "WHILE", "CALL"})
"""Ops that run other subgraphs, which may read and set variables."""


@lru_cache(4)
def repeated(model: TrainableModel) -> EngineFile:
    """Return a model's file with signatures of several steps if its training step is small.

    Raises:
        ModelError: The file is damaged.
    """
    own = own_file(model)
    ops = sum(sum(kinds.values()) for kinds in model.operators.values())
    if ops > MOST_OPS_OF_FILE or not is_small(model, "train", model.trainable_layout.size):
        return own
    try:
        file = unpacked(model.content)
        add_repeated(file, "train")
        return replace(own, content=packed(file), several=frozenset({"train"}))
    except Exception as error:  # what the declarations do not show may be damaged, and causes any exception
        raise damaged(model.where, error) from error


def repeated_name(signature: str, steps: int) -> str:
    """Return the name of the signature of several steps."""
    return f"{signature}_{steps}_times"


def is_small(model: TrainableModel, signature: str, weights: int) -> bool:
    """Return whether a step takes arrays of fixed shapes, returns its loss, and costs little beside its call.

    Args:
        model: The model.
        signature: The step.
        weights: The number of weights that it trains.
    """
    declared = model.signatures[signature]
    known = declared.inputs.keys() <= INPUTS and "loss" in declared.outputs
    fixed = all(-1 not in tensor.shape for tensor in declared.inputs.values())
    operators = model.operators[signature]
    few = sum(operators.values()) <= MOST_OPS and not operators.keys() & CONTROL
    return known and fixed and few and model.batch_size * weights <= MOST_PRODUCTS


def add_repeated(file: Any, signature: str) -> None:
    """Add to a file, in its object form, the signatures of several steps."""
    [declared] = [s for s in file.signatureDefs if s.signatureKey in (signature, signature.encode())]
    flatten_products(file, file.subgraphs[declared.subgraphIndex])
    for count in STEPS:
        _add(file, signature, declared, count)


def _add(file: Any, signature: str, declared: Any, count: int) -> None:
    """Add the signature of a number of steps.

    Steps hand their variables' values to the next step as tensors; they are read once and set once.
    """
    step, added = file.subgraphs[declared.subgraphIndex], NewSubgraph(file, repeated_name(signature, count))
    inputs = {e.tensorIndex: added.stacked_input(e.name.decode(), step, e.tensorIndex, count) for e in declared.inputs}
    [loss] = [entry.tensorIndex for entry in declared.outputs if entry.name.decode() == "loss"]
    kinds = [file.operatorCodes[operator.opcodeIndex].builtinCode for operator in step.operators]
    names = {
        int(operator.outputs[0]): operator.builtinOptions.sharedName
        for operator, kind in zip(step.operators, kinds, strict=True)
        if kind == OPS.VAR_HANDLE
    }
    made = {int(i) for operator in step.operators for i in operator.outputs if i >= 0}
    lasting = dict[int, int]()  # constants and handles
    values, handles, losses = dict[bytes, int](), dict[bytes, int](), []
    for number in range(count):
        places = {**lasting, **{tensor: pieces[number] for tensor, pieces in inputs.items()}}
        for operator, kind in zip(step.operators, kinds, strict=True):
            if kind == OPS.READ_VARIABLE and (value := values.get(names[int(operator.inputs[0])])) is not None:
                places[int(operator.outputs[0])] = value
            elif kind == OPS.ASSIGN_VARIABLE:
                handle, new = (int(i) for i in operator.inputs)
                values[names[handle]], handles[names[handle]] = places[new], places[handle]
            elif kind not in (OPS.VAR_HANDLE, OPS.CALL_ONCE) or number == 0:
                added.repeat(operator, step, places)
                if kind == OPS.READ_VARIABLE:
                    values[names[int(operator.inputs[0])]] = places[int(operator.outputs[0])]
        losses.append(places[loss])
        lasting = {old: new for old, new in places.items() if old in names or old not in made | inputs.keys()}
    for name, handle in handles.items():
        added.set(handle, values[name])
    added.output("loss", added.stacked(losses))
    added.sign(repeated_name(signature, count))
