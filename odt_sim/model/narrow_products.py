"""Matrix products with few columns, for AVX-512: an in-memory copy of a file with FULLY_CONNECTED instead of them.

On AVX-512, XNNPACK multiplies by 32 columns at once, so a product with 16 columns, such as that of a recurrent layer's
states, takes as long as one with 32. For FULLY_CONNECTED, it also has kernels for 16 columns. LiteRT's delegate runs
that op with variable weights under a flag that only the compiled model has. The sums have the same terms in the same
order, so results are bit-for-bit the same.
"""

from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

from ai_edge_litert import schema_py_generated as schema

from odt_sim.model.computed_outputs import compute_outputs
from odt_sim.model.editing import add_tensor, integers, packed, rearranging, unpacked
from odt_sim.model.engine_file import EngineFile, own_file
from odt_sim.model.fully_connected import connect_fully
from odt_sim.model.graph import Op, Subgraph
from odt_sim.model.graph_reader import damaged, read_graph
from odt_sim.model.trainable import TrainableModel

COLUMNS = range(3, 17)
"""The numbers of columns of a narrow product; XNNPACK has other kernels for fewer."""

ROWS = 32
"""The fewest rows of a narrow product; with fewer, transposing the columns takes longer than it saves."""

LEAST_SHARE = 0.25
"""The share of a step's multiplications in narrow products below which the copy does not pay off."""

MOST_OPS = 10_000
"""The most ops of all signatures: unpacking and packing a file takes 0.15 to 0.4 ms per op, once per process tree."""


def narrow_products(model: TrainableModel) -> EngineFile | None:
    """Return a model's file with the narrow products of its training steps as FULLY_CONNECTED.

    Returns:
        None if few of a step's multiplications are in such products, or if the file already has FULLY_CONNECTED, whose
        results the flag would change.

    Raises:
        ModelError: The file is damaged.
    """
    kinds = [kind for of_signature in model.operators.values() for kind in of_signature]
    ops = sum(sum(of_signature.values()) for of_signature in model.operators.values())
    if ops > MOST_OPS or "FULLY_CONNECTED" in kinds or "BATCH_MATMUL" not in model.operators["train"]:
        return None
    content = _with_fully_connected(model.content, model.where)
    return None if content is None else replace(own_file(model), content=content)


@lru_cache(4)
def _with_fully_connected(content: bytes, where: str) -> bytes | None:
    """Return the copy, made once for all jobs of a sweep that load the file."""
    graph = read_graph(content, where)
    if _share(graph.subgraphs[graph.signatures["train"].subgraph]) < LEAST_SHARE:
        return None
    steps = {entry.subgraph for name, entry in graph.signatures.items() if name.startswith("train")}
    try:
        file = unpacked(content)
        for index in steps:
            _Rewriting(file, file.subgraphs[index]).rewrite(_narrow(graph.subgraphs[index]))
        compute_outputs(file)
        return packed(file)
    except Exception as error:  # parts that the declarations do not show may be damaged, and cause any exception
        raise damaged(where, error) from error


def _share(step: Subgraph) -> float:
    """Return the share of a step's multiplications in narrow products."""
    sizes = {place: _multiplications(step, op) for place, op in enumerate(step.ops) if op.kind == "BATCH_MATMUL"}
    return sum(sizes[place] for place in _narrow(step)) / max(1, sum(sizes.values()))


def _narrow(step: Subgraph) -> list[int]:
    """Return the positions of the narrow products among a step's ops."""
    return [place for place, op in enumerate(step.ops) if op.kind == "BATCH_MATMUL" and _is_narrow(step, op)]


def _is_narrow(step: Subgraph, product: Op) -> bool:
    left, right, result = (step.tensors[i] for i in (*product.inputs, *product.outputs))
    variable = right.dtype == "float32" and not right.constant and not product.options["adjX"]
    single = left.fixed and right.fixed and prod(left.shape[:-2]) == prod(right.shape[:-2]) == 1
    fits = len(left.shape) == len(result.shape) and result.shape[-1] in COLUMNS and result.shape[-2] >= ROWS
    return variable and single and fits


def _multiplications(step: Subgraph, product: Op) -> int:
    left, result = (step.tensors[i] for i in (product.inputs[0], product.outputs[0]))
    return prod(result.shape) * left.shape[-2 if product.options["adjX"] else -1] if left.fixed and result.fixed else 0


class _Rewriting:
    """The rewriting of a subgraph."""

    def __init__(self, file: Any, subgraph: Any) -> None:
        self._file, self._subgraph = file, subgraph
        self._weights = dict[tuple[int, bool], int]()
        self._operators = list[Any]()

    def rewrite(self, products: Collection[int]) -> None:
        """Turn the products at some positions among the ops into FULLY_CONNECTED."""
        for place, operator in enumerate(self._subgraph.operators):
            if place in products:
                left, right = map(int, operator.inputs)
                connect_fully(self._file, operator, left, self._weights_of(right, bool(operator.builtinOptions.adjY)))
            self._operators.append(operator)
        self._subgraph.operators = self._operators

    def _weights_of(self, right: int, transposed: bool) -> int:
        """Return the right factor as weights `[columns, inner]`, after the ops that compute them."""
        if (right, transposed) not in self._weights:
            shape = integers(self._subgraph.tensors[right].shape)[-2:]
            matrix = self._rearranged(right, shape, shape, schema.ReshapeOptionsT())
            if not transposed:
                matrix = self._rearranged(matrix, [1, 0], shape[::-1], schema.TransposeOptionsT())
            self._weights[right, transposed] = matrix
        return self._weights[right, transposed]

    def _rearranged(self, tensor: int, vector: list[int], shape: list[int], options: Any) -> int:
        result = add_tensor(self._subgraph, "columns", shape, schema.TensorType.FLOAT32)
        self._operators.append(rearranging(self._file, self._subgraph, tensor, vector, result, options))
        return result
