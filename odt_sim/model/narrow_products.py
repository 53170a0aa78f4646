"""Products by few columns, for processors with AVX-512: a copy of a file, in memory, that has them as FULLY_CONNECTED.

XNNPACK multiplies by 32 columns at once there, so that a product by 16, such as that of a recurrent layer's states, takes as
long as one by 32. For FULLY_CONNECTED it has kernels of 16, too. LiteRT's delegate runs it with variable weights under a flag
that only the compiled model takes. The sums have the same terms in the same order, and so the same bits.
"""

from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

from ai_edge_litert import schema_py_generated as schema

from odt_sim.model.computed_outputs import compute_outputs
from odt_sim.model.editing import OPS, add_tensor, integers, kind_of, operators_of, packed, rearranging, unpacked
from odt_sim.model.engine_file import EngineFile, own_file
from odt_sim.model.fully_connected import connect_fully
from odt_sim.model.graph_reader import damaged
from odt_sim.model.trainable import TrainableModel

COLUMNS = 16
"""The most columns of a narrow product."""

ROWS = 32
"""The fewest rows of one; below, its columns take longer to transpose than they save."""

LEAST_SHARE = 0.25
"""The share of a step's multiplications in narrow products below which the copy does not pay."""

MOST_OPS = 10_000
"""Ops of all signatures; unpacking and packing a file takes 0.15 to 0.4 ms for each, in every process that trains."""


@lru_cache(4)
def narrow_products(model: TrainableModel) -> EngineFile | None:
    """Return a model's file with the narrow products of its training steps as FULLY_CONNECTED.

    Returns:
        None if few of a step's multiplications are in such products, or if the file has FULLY_CONNECTED itself, whose bits
        the flag would change.

    Raises:
        ModelError: The file is damaged.
    """
    kinds = [kind for of_signature in model.operators.values() for kind in of_signature]
    ops = sum(sum(of_signature.values()) for of_signature in model.operators.values())
    if ops > MOST_OPS or "FULLY_CONNECTED" in kinds or "BATCH_MATMUL" not in model.operators["train"]:
        return None
    try:
        content = _with_fully_connected(model.content)
    except Exception as error:  # what the declarations do not show may be damaged, and causes any exception
        raise damaged(model.where, error) from error
    return None if content is None else replace(own_file(model), content=content)


def _with_fully_connected(content: bytes) -> bytes | None:
    file = unpacked(content)
    steps = {s.signatureKey.decode(): file.subgraphs[s.subgraphIndex] for s in file.signatureDefs}
    if _Products(file, steps["train"]).share < LEAST_SHARE:
        return None
    for name, subgraph in steps.items():
        if name.startswith("train"):
            _Products(file, subgraph).rewrite()
    compute_outputs(file)
    return packed(file)


class _Products:
    """The products of a subgraph."""

    def __init__(self, file: Any, subgraph: Any) -> None:
        self._file, self._subgraph = file, subgraph
        self._weights = dict[tuple[int, bool], int]()
        self._operators = list[Any]()

    @property
    def share(self) -> float:
        """The share of the multiplications that narrow products do."""
        products = operators_of(self._file, self._subgraph, OPS.BATCH_MATMUL)
        narrow = sum(self._multiplications(product) for product in products if self._is_narrow(product))
        return narrow / max(1, sum(map(self._multiplications, products)))

    def rewrite(self) -> None:
        """Make FULLY_CONNECTED of the narrow products."""
        for operator in self._subgraph.operators:
            if kind_of(self._file, operator) == OPS.BATCH_MATMUL and self._is_narrow(operator):
                left, right = map(int, operator.inputs)
                connect_fully(self._file, operator, left, self._weights_of(right, bool(operator.builtinOptions.adjY)))
            self._operators.append(operator)
        self._subgraph.operators = self._operators

    def _is_narrow(self, product: Any) -> bool:
        (left, right), result = map(int, product.inputs), self._shape(int(product.outputs[0]))
        tensor = self._subgraph.tensors[right]
        variable = self._file.buffers[tensor.buffer].data is None and tensor.type == schema.TensorType.FLOAT32
        single = prod(self._shape(left)[:-2]) == prod(self._shape(right)[:-2]) == 1
        fits = len(result) > 1 and result[-1] <= COLUMNS and result[-2] >= ROWS
        return variable and single and fits and not product.builtinOptions.adjX

    def _multiplications(self, product: Any) -> int:
        left = self._shape(int(product.inputs[0]))
        return prod(self._shape(int(product.outputs[0]))) * (
            left[-2 if product.builtinOptions.adjX else -1] if left else 0
        )

    def _shape(self, tensor: int) -> list[int]:
        """Return a shape; empty if a size is not fixed."""
        own = self._subgraph.tensors[tensor]
        return [] if -1 in integers(own.shapeSignature) else integers(own.shape)

    def _weights_of(self, right: int, transposed: bool) -> int:
        """Return the right factor as weights `[columns, inner]`, after the ops that compute them."""
        if (right, transposed) not in self._weights:
            shape = self._shape(right)[-2:]
            matrix = self._rearranged(right, shape, shape, schema.ReshapeOptionsT())
            if not transposed:
                matrix = self._rearranged(matrix, [1, 0], shape[::-1], schema.TransposeOptionsT())
            self._weights[right, transposed] = matrix
        return self._weights[right, transposed]

    def _rearranged(self, tensor: int, vector: list[int], shape: list[int], options: Any) -> int:
        result = add_tensor(self._subgraph, "columns", shape, schema.TensorType.FLOAT32)
        self._operators.append(rearranging(self._file, self._subgraph, tensor, vector, result, options))
        return result
