"""What the subgraphs of a `.tflite` file compute: their ops, and the variables that they read and set."""

from collections.abc import Iterator
from typing import Any

from ai_edge_litert import schema_py_generated as schema

_KINDS = {value: name for name, value in vars(schema.BuiltinOperator).items() if not name.startswith("_")}


def operator_counts(model: Any, index: int) -> dict[str, int]:
    """Returns the number of ops of each kind in a subgraph; custom and Flex ops by their own names.

    Args:
        model: The flatbuffer's root.
        index: The subgraph's index.
    """
    counts: dict[str, int] = {}
    for kind, _ in _operators(model, index):
        counts[kind] = counts.get(kind, 0) + 1
    return dict(sorted(counts.items()))


def uninitialized_variables(model: Any, indices: list[int]) -> list[str]:
    """Returns the names of the variables that subgraphs read and that no initializer sets.

    LiteRT does not fail on these: what it reads is whatever the memory held.

    Args:
        model: The flatbuffer's root.
        indices: The indices of the signatures' subgraphs.
    """
    read = {name for i in indices for name in _variables(model, i, "READ_VARIABLE")}
    initializers = {
        _options(operator, schema.CallOnceOptions()).InitSubgraphIndex()
        for i in indices
        for kind, operator in _operators(model, i)
        if kind == "CALL_ONCE"
    }
    return sorted(read - {name for i in initializers for name in _variables(model, i, "ASSIGN_VARIABLE")})


def _operators(model: Any, index: int) -> Iterator[tuple[str, Any]]:
    """Yields each op's kind and the op."""
    subgraph = model.Subgraphs(index)
    for i in range(subgraph.OperatorsLength()):
        operator = subgraph.Operators(i)
        code = model.OperatorCodes(operator.OpcodeIndex())
        custom = code.CustomCode()
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        yield custom.decode() if custom else _KINDS.get(number, str(number)), operator


def _variables(model: Any, index: int, wanted: str) -> Iterator[str]:
    """Yields the names of the variables on which a subgraph's ops of one kind work."""
    handles: dict[int, str] = {}
    for kind, operator in _operators(model, index):
        if kind == "VAR_HANDLE":
            handles[operator.Outputs(0)] = _options(operator, schema.VarHandleOptions()).SharedName().decode()
        elif kind == wanted and operator.Inputs(0) in handles:
            yield handles[operator.Inputs(0)]


def _options(operator: Any, options: Any) -> Any:
    table = operator.BuiltinOptions()
    options.Init(table.Bytes, table.Pos)
    return options
