"""Store a matrix once if inference uses it and its transpose, as a language model's embedding and output do."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.model.editing import OPS, operators_of
from odt_sim.model.fully_connected import connect_fully, constant_matrix


def share_tables(model: Any, subgraph: Any) -> None:
    """Multiply by a table of `GATHER` itself where a product takes its transpose as a constant.

    The folding of constants computes such a transpose from weights that the two ops share.

    Args:
        model: A file in its object form.
        subgraph: One of its subgraphs.
    """
    tables = {int(operator.inputs[0]) for operator in operators_of(model, subgraph, OPS.GATHER)}
    for operator in operators_of(model, subgraph, OPS.BATCH_MATMUL):
        left, right = map(int, operator.inputs)
        options, matrix = operator.builtinOptions, _matrix(model, subgraph, right)
        if matrix is None or options.adjX:
            continue
        weights = matrix if options.adjY else matrix.T
        for table in tables - {right}:
            values = _matrix(model, subgraph, table)
            if values is not None and np.array_equal(values, weights):
                connect_fully(model, operator, left, table)
                break


def _matrix(model: Any, subgraph: Any, index: int) -> NDArray[np.uint32] | None:
    """Return the bits of a tensor that is one constant float32 matrix, which compare NaN, too; else None."""
    matrix = constant_matrix(model, subgraph, index)
    return None if matrix is None else matrix.view(np.uint32)
