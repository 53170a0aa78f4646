"""Several training steps in one call: an in-memory copy of a file with signatures that repeat its step.

A small model's step takes less time than the call around it. Each added signature runs the ops of the file's own step,
in their order, once for each of its steps, so weights and losses are bit-for-bit those of single calls. It takes a
device's rows once, and each step gathers its own: the batches of several epochs would not fit the processor's caches.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import ceil
from typing import Any

import numpy as np

from odt_sim.model.editing import OPS, handles_of, integers, kind_of, packed, reshape_to, tensors_of, unpacked
from odt_sim.model.engine_file import EngineFile, own_file
from odt_sim.model.graph import CONTROL, RANDOM
from odt_sim.model.graph_reader import damaged
from odt_sim.model.matrix_products import flatten_products
from odt_sim.model.step_parts import ELEMENTWISE, StepParts, parts_of
from odt_sim.model.surgery import NewSubgraph
from odt_sim.model.trainable import TrainableModel

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


def steps_of_calls(usual: int | None) -> tuple[int, ...]:
    """Return the numbers of steps of a call, the largest first, so that a usual training needs few calls.

    Args:
        usual: The number of steps of a usual training: 10 need one call, 30 need two calls of 15; None if unknown.
    """
    if usual is None or usual < 2:
        return STEPS
    largest = ceil(usual / ceil(usual / STEPS[0]))
    return largest, *(size for size in STEPS if size < largest)


def repeated(model: TrainableModel, usual: int | None = None) -> EngineFile:
    """Return a model's file with signatures of several steps if its training step is small.

    Args:
        model: The model.
        usual: The number of steps of a usual training, see `steps_of_calls`.

    Raises:
        ModelError: The file is damaged.
    """
    own = own_file(model)
    ops = sum(sum(kinds.values()) for kinds in model.operators.values())
    if ops > MOST_OPS_OF_FILE or not is_small(model, "train", model.trainable_layout.size):
        return own
    counts = steps_of_calls(usual)
    return replace(own, content=_with_steps(model.content, counts, model.where), several={"train": counts})


@lru_cache(4)
def _with_steps(content: bytes, counts: tuple[int, ...], where: str) -> bytes:
    """Return a file with the signatures, built once for all jobs of a sweep that load it."""
    try:
        file = unpacked(content)
        add_repeated(file, "train", counts)
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


def add_repeated(file: Any, signature: str, counts: Sequence[int]) -> None:
    """Add to a file, in its object form, the signatures of several steps.

    Args:
        file: The file.
        signature: The training signature.
        counts: The number of steps of each added signature.
    """
    [declared] = [s for s in file.signatureDefs if s.signatureKey in (signature, signature.encode())]
    step = file.subgraphs[declared.subgraphIndex]
    flatten_products(file, step)
    inputs = {entry.tensorIndex: entry.name.decode() for entry in declared.inputs}
    [loss] = [entry.tensorIndex for entry in declared.outputs if entry.name.decode() == "loss"]
    stacked = {tensor for tensor, name in inputs.items() if name not in ROWS}
    parts = parts_of(file, step, stacked, loss)
    for count in counts:
        _Repetition(file, step, parts, NewSubgraph(file, repeated_name(signature, count)), count).add(inputs, loss)


class _Repetition:
    """Builds a signature of several steps.

    Each step passes the variables' values to the next one as tensors; variables are read once and set once.
    """

    def __init__(self, file: Any, step: Any, parts: StepParts, added: NewSubgraph, count: int) -> None:
        self._file, self._step, self._parts, self._added, self._count = file, step, parts, added, count
        self._names = handles_of(file, step)
        self._stacks = dict[int, int]()  # tensors with the steps as first axis, by the step's tensors
        self._lasting = dict[int, int]()  # constants and handles

    def add(self, inputs: Mapping[int, str], loss: int) -> None:
        """Add the signature.

        Args:
            inputs: The names of the step's inputs by their tensors.
            loss: The loss tensor.
        """
        added, count = self._added, self._count
        stacked = {i: name for i, name in inputs.items() if name not in ROWS}
        self._stacks = {i: added.stacked_input(name, self._step, i, count) for i, name in stacked.items()}
        for operator in self._parts.before:
            self._for_all_steps(operator)
        needed = _inputs_of(self._parts.between) & self._stacks.keys()
        pieces = {i: added.pieces(self._stacks[i], self._step, i, count) for i in sorted(needed)}
        [(tensor, name)] = inputs.items() - stacked.items()
        positions = added.input(POSITIONS, [count, integers(self._step.tensors[tensor].shape)[0]], "int32")
        pieces[tensor] = added.rows(name, positions, self._step, tensor)
        kept = _inputs_of(self._parts.after) & _outputs_of(self._parts.between)
        kept |= {loss} - self._stacks.keys() - _outputs_of(self._parts.after)
        for tensor, values in self._steps(pieces, kept).items():
            self._stacks[tensor] = added.stacked(values)
        for operator in self._parts.after:
            self._for_all_steps(operator)
        added.output("loss", self._stacks[loss])
        added.sign(added.name)

    def _for_all_steps(self, operator: Any) -> None:
        """Add an op that computes its output for all steps."""
        inputs, [output] = [int(i) for i in operator.inputs], [int(i) for i in operator.outputs]
        self._stacks[output] = self._added.stacked_form(self._step, output, self._count)
        places, kind = {**self._lasting, **self._stacks}, kind_of(self._file, operator)
        if kind == OPS.RESHAPE:
            shape = np.array([self._count, *integers(self._step.tensors[output].shape)], np.int32)
            operator, places[inputs[1]] = reshape_to(operator, shape), self._added.constant("shape", shape)
        elif kind == OPS.SUM:
            tensor = self._step.tensors[inputs[1]]
            axes = np.frombuffer(bytes(self._file.buffers[tensor.buffer].data), np.int32)
            shifted = np.where(axes < 0, axes, axes + 1).astype(np.int32).reshape(integers(tensor.shape))
            places[inputs[1]] = self._added.constant("axes", shifted)
        self._added.repeat(operator, self._step, places)
        if kind in ELEMENTWISE:
            self._lasting |= {i: places[i] for i in inputs if i not in self._stacks}

    def _steps(self, pieces: Mapping[int, Sequence[int]], kept: Collection[int]) -> dict[int, list[int]]:
        """Add the ops of each step, and set the variables to their last values.

        Args:
            pieces: By tensors of the file's step, the tensors that replace them in each step.
            kept: The tensors of the file's step to return.

        Returns:
            By kept tensor, the tensors that replace it in each step.
        """
        values, handles, results = dict[bytes, int](), dict[bytes, int](), {tensor: list[int]() for tensor in kept}
        made = _outputs_of(self._step.operators) | self._stacks.keys()
        kinds = [kind_of(self._file, operator) for operator in self._parts.between]
        for number in range(self._count):
            places = {**self._lasting, **{tensor: own[number] for tensor, own in pieces.items()}}
            for operator, kind in zip(self._parts.between, kinds, strict=True):
                if (
                    kind == OPS.READ_VARIABLE
                    and (value := values.get(self._names[int(operator.inputs[0])])) is not None
                ):
                    places[int(operator.outputs[0])] = value
                elif kind == OPS.ASSIGN_VARIABLE:
                    handle, new = (int(i) for i in operator.inputs)
                    values[self._names[handle]] = self._place(places, new)
                    handles[self._names[handle]] = places[handle]
                elif kind not in (OPS.VAR_HANDLE, OPS.CALL_ONCE) or number == 0:
                    self._added.repeat(operator, self._step, places)
                    if kind == OPS.READ_VARIABLE:
                        values[self._names[int(operator.inputs[0])]] = places[int(operator.outputs[0])]
            for tensor, own in results.items():
                own.append(self._place(places, tensor))
            self._lasting = {old: new for old, new in places.items() if old in self._names or old not in made}
        for name, handle in handles.items():
            self._added.set(handle, values[name])
        return results

    def _place(self, places: dict[int, int], tensor: int) -> int:
        """Return the tensor that replaces a tensor of the step; add it for a constant that no op has used yet."""
        if tensor not in places:
            places[tensor] = self._added.copied(self._step, tensor)
        return places[tensor]


def _inputs_of(operators: Sequence[Any]) -> set[int]:
    return {i for operator in operators for i in tensors_of(operator.inputs)}


def _outputs_of(operators: Sequence[Any]) -> set[int]:
    return {i for operator in operators for i in tensors_of(operator.outputs)}
