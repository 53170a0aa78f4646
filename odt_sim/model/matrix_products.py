"""Removal of the first axis of size 1 that an export adds to matrix products, and of the ops that add and remove it.

For a product at rank 2, TensorFlow's converter uses another op, which is slower with variable weights, and loses a ReLU
right after it. LiteRT's BATCH_MATMUL also takes matrices, and computes the same bits.
"""

from copy import copy
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from odt_sim.model.editing import OPS, add_buffer, integers, kind_of, operators_of, reshape_to


def flatten_products(file: Any, subgraph: Any) -> None:
    """Flatten the products whose factors are reshaped right before them, and whose result right after.

    Args:
        file: A file in its object form.
        subgraph: One of its subgraphs, with fixed shapes.
    """
    flattening = _Flattening(file, subgraph)
    for product in operators_of(file, subgraph, OPS.BATCH_MATMUL):
        flattening.flatten(product)
    subgraph.operators = flattening.operators()


class _Flattening:
    """The changes to one subgraph."""

    def __init__(self, file: Any, subgraph: Any) -> None:
        self._file, self._subgraph = file, subgraph
        self._reshapes = {int(op.outputs[0]): op for op in operators_of(file, subgraph, OPS.RESHAPE)}
        self._flat = dict[int, tuple[int, Any]]()  # the matrix of a factor, and the new op that makes it
        self._dropped = set[int]()

    def flatten(self, product: Any) -> None:
        """Flatten a product, if its factors and its result allow it."""
        factors, result = [int(i) for i in product.inputs], int(product.outputs[0])
        after = [op for op in self._subgraph.operators if result in integers(op.inputs)]
        single = all(len(self._shape(i)) == 3 and self._shape(i)[0] == 1 for i in (*factors, result))
        reshaped = all(i in self._reshapes for i in factors) and result not in integers(self._subgraph.outputs)
        if not single or not reshaped or len(after) != 1 or kind_of(self._file, after[0]) != OPS.RESHAPE:
            return
        if self._shape(int(after[0].outputs[0])) != self._shape(result)[1:]:
            return
        product.inputs, product.outputs = np.array([self._matrix(i) for i in factors], np.int32), after[0].outputs
        self._dropped.add(id(after[0]))

    def operators(self) -> list[Any]:
        """Return the remaining ops, in order."""
        flattened = {id(self._reshapes[i]): op for i, (_, op) in self._flat.items() if op is not None}
        kept = [op for op in self._subgraph.operators if id(op) not in self._dropped]
        used = {i for op in kept for i in integers(op.inputs)} | {*integers(self._subgraph.outputs)}
        unused = {id(self._reshapes[i]) for i in self._flat.keys() - used}
        pairs = ((op, flattened.get(id(op))) for op in kept)
        return [op for own, added in pairs for op in (own, added) if op is not None and id(op) not in unused]

    def _matrix(self, factor: int) -> int:
        """Return the tensor that a factor was reshaped from if it is the matrix, else a new tensor of a new op."""
        if factor not in self._flat:
            reshape, shape = self._reshapes[factor], self._shape(factor)[1:]
            source = int(reshape.inputs[0])
            self._flat[factor] = (source, None) if self._shape(source) == shape else self._reshaped(reshape, shape)
        return self._flat[factor][0]

    def _reshaped(self, reshape: Any, shape: list[int]) -> tuple[int, Any]:
        matrix, sizes = copy(self._subgraph.tensors[int(reshape.outputs[0])]), schema.TensorT()
        matrix.shape, matrix.shapeSignature = np.array(shape, np.int32), None
        operator = reshape_to(reshape, matrix.shape)
        sizes.name, sizes.type, sizes.shape = "shape", schema.TensorType.INT32, np.array([2], np.int32)
        sizes.buffer = add_buffer(self._file, matrix.shape)
        self._subgraph.tensors += [matrix, sizes]
        place = len(self._subgraph.tensors) - 2
        operator.inputs = np.array([reshape.inputs[0], place + 1], np.int32)
        operator.outputs = np.array([place], np.int32)
        return place, operator

    def _shape(self, tensor: int) -> list[int]:
        """Return a shape; empty if a size is not fixed."""
        own = self._subgraph.tensors[tensor]
        return [] if -1 in integers(own.shapeSignature) else integers(own.shape)
