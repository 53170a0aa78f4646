"""Several training steps in one call: an in-memory copy of a file with signatures that repeat its step.

A small model's step takes less time than the call around it. Each added signature runs the ops of the file's own step,
in their order, once for each of its steps, so weights and losses are bit-for-bit those of single calls. It takes a
device's rows once, and each step gathers its own: the batches of several epochs would not fit the processor's caches.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from odt_sim.model.editing.surgery import NewSubgraph
from odt_sim.model.editing.tree import OPS, handles_of, integers, kind_of, packed, unpacked
from odt_sim.model.reading.graph import CONTROL, RANDOM
from odt_sim.model.reading.graph_reader import damaged, text_of
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Layout


@dataclass(frozen=True)
class EngineFile:
    """A file, and the parameters and slots of a model that it contains.

    Attributes:
        content: Its bytes.
        layout: The parameters `a0..aN` of its signatures `parameters` and `restore`.
        slots: The numbers of the optimizer's slots of its signatures `optimizer_state` and `restore_optimizer_state`.
        offset: The parameters of its signature `set_gradient_offset`; empty if it has none.
        several: By training signature, the step counts, the largest first, for which the file also has a signature of
            several steps, see `odt_sim.model.editing.repeated`. It has the inputs and outputs of a single step with the steps
            as a further first axis, except for the rows, of which each step gathers its own.
    """

    content: bytes
    layout: Layout
    slots: tuple[int, ...]
    offset: Layout
    several: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def own_file(model: TrainableModel) -> EngineFile:
    """Return a model's own file, which contains the whole model."""
    offset = model.trainable_layout if "set_gradient_offset" in model.signatures else Layout(())
    return EngineFile(model.content, model.layout, tuple(range(len(model.slots))), offset)


STEPS = (16, 8, 2)
"""The numbers of steps of a call, the largest first; a training uses the largest that its remaining steps fill."""

MOST_OPS = 160
"""The most ops of a step; with more, the time of the saved calls is not worth the memory."""

MOST_OPS_OF_FILE = 500
"""The most ops of all signatures: unpacking and packing takes 0.15 to 0.4 ms per op, in each training process."""

MOST_PRODUCTS = 1 << 21
"""The most trainable weights times rows of a batch: about 0.2 ms per step, above which the call hardly matters."""

INPUTS = frozenset({"x", "embedding", "y", "sample_weight", "learning_rate", "mu"})
"""The inputs that a step may have; models with several inputs or with further ones take single steps."""

ROWS = frozenset({"x", "embedding"})
"""The inputs that take a device's rows, from which each step gathers its own."""

POSITIONS = "positions"
"""The input `[steps, batch]` int32 with the rows of each step."""

DTYPES = frozenset({"float32", "int32", "int16", "int8", "uint8", "bool"})
"""Types of inputs that LiteRT's UNPACK supports."""


def repeated(model: TrainableModel) -> EngineFile:
    """Return a model's file with signatures of several steps if its training step is small.

    Args:
        model: The model.

    Raises:
        ModelError: The file is damaged.
    """
    own = own_file(model)
    ops = sum(sum(kinds.values()) for kinds in model.operators.values())
    if ops > MOST_OPS_OF_FILE or not is_small(model, "train", model.trainable_layout.size):
        return own
    return replace(own, content=_with_steps(model.content, model.where), several={"train": STEPS})


@lru_cache(4)
def _with_steps(content: bytes, where: str) -> bytes:
    """Return a file with the signatures, built once for all jobs of a sweep that load it."""
    try:
        file = unpacked(content)
        add_repeated(file, "train")
        return packed(file)
    except Exception as error:  # parts that the declarations do not show may be damaged, and cause any exception
        raise damaged(where, error) from error


def repeated_name(signature: str, steps: int) -> str:
    """Return the name of the signature of several steps."""
    return f"{signature}_{steps}_times"


def is_small(model: TrainableModel, signature: str, weights: int) -> bool:
    """Return whether a step takes arrays of fixed shapes, returns its loss, and costs little compared with its call.

    Args:
        model: The model.
        signature: The step.
        weights: The number of weights that it trains.
    """
    declared = model.signatures[signature]
    known = declared.inputs.keys() <= INPUTS and "loss" in declared.outputs
    fixed = all(-1 not in tensor.shape and tensor.dtype in DTYPES for tensor in declared.inputs.values())
    operators = model.operators[signature]
    few = sum(operators.values()) <= MOST_OPS and not operators.keys() & (CONTROL | {*RANDOM})
    return known and fixed and few and model.batch_size * weights <= MOST_PRODUCTS


def add_repeated(file: Any, signature: str) -> None:
    """Add to a file, in its object form, the signatures of several steps.

    Args:
        file: The file.
        signature: The training signature.
    """
    [declared] = [s for s in file.signatureDefs if s.signatureKey in (signature, signature.encode())]
    step = file.subgraphs[declared.subgraphIndex]
    inputs = {entry.tensorIndex: text_of(entry.name) for entry in declared.inputs}
    [loss] = [entry.tensorIndex for entry in declared.outputs if text_of(entry.name) == "loss"]
    for count in STEPS:
        _add(file, step, inputs, loss, NewSubgraph(file, repeated_name(signature, count)), count)


def _add(file: Any, step: Any, inputs: Mapping[int, str], loss: int, added: NewSubgraph, count: int) -> None:
    """Fill the signature of several steps: they pass the variables' values on as tensors, and each is set once.

    Args:
        file: The file.
        step: The subgraph of one step.
        inputs: The names of the step's inputs by their tensors.
        loss: The step's loss.
        added: The new subgraph.
        count: The number of steps.
    """
    pieces = dict[int, list[int]]()
    for tensor, name in inputs.items():
        if name in ROWS:
            positions = added.input(POSITIONS, [count, integers(step.tensors[tensor].shape)[0]], "int32")
            pieces[tensor] = added.rows(name, positions, step, tensor)
        else:
            pieces[tensor] = added.pieces(added.stacked_input(name, step, tensor, count), step, tensor, count)
    names = handles_of(file, step)
    kinds = [kind_of(file, operator) for operator in step.operators]
    computed = {i for operator in step.operators for i in integers(operator.outputs)} - names.keys()
    lasting, values, handles, losses = dict[int, int](), dict[bytes, int](), dict[bytes, int](), list[int]()
    for number in range(count):
        places = {**lasting, **{tensor: each[number] for tensor, each in pieces.items()}}
        for operator, kind in zip(step.operators, kinds, strict=True):
            variable = names.get(int(operator.inputs[0])) if kind in (OPS.READ_VARIABLE, OPS.ASSIGN_VARIABLE) else None
            if kind == OPS.ASSIGN_VARIABLE and variable is not None:
                handle, new = integers(operator.inputs)
                values[variable], handles[variable] = added.place(places, step, new), places[handle]
            elif variable in values:
                places[int(operator.outputs[0])] = values[variable]
            elif number == 0 or kind not in (OPS.VAR_HANDLE, OPS.CALL_ONCE):
                added.repeat(operator, step, places)
                if variable is not None:
                    values[variable] = places[int(operator.outputs[0])]
        losses.append(added.place(places, step, loss))
        lasting = {old: new for old, new in places.items() if old not in computed and old not in pieces}
    for variable, handle in handles.items():
        added.set(handle, values[variable])
    added.output("loss", added.stacked(losses))
    added.sign(added.name)
