"""The ops of a `.tflite` file's subgraphs, and the variables that they read and set."""

from collections.abc import Iterator, Mapping
from typing import Any

from ai_edge_litert import schema_py_generated as schema

_KINDS = {value: name for name, value in vars(schema.BuiltinOperator).items() if not name.startswith("_")}


def operator_counts(model: Any, index: int) -> dict[str, int]:
    """Return the number of ops of each kind in a subgraph; custom and Flex ops by their own names."""
    counts: dict[str, int] = {}
    for kind, _ in _operators(model, index):
        counts[kind] = counts.get(kind, 0) + 1
    return dict(sorted(counts.items()))


def uninitialized_variables(model: Any, indices: list[int]) -> list[str]:
    """Return the names of variables that subgraphs read and no initializer sets; LiteRT would read arbitrary memory.

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


def unrestored_variables(model: Any, signatures: Mapping[str, int]) -> list[str]:
    """Return the names of variables that training changes and reads, and no signature of the contract sets.

    The host cannot save and restore them, so devices that share an interpreter would share their values.

    Args:
        model: The flatbuffer's root.
        signatures: The index of each signature's subgraph by name.
    """
    training = [
        index for name, index in signatures.items() if name in ("train", "head_train") or name.startswith("train_")
    ]
    restoring = [index for name, index in signatures.items() if name in ("restore", "restore_optimizer_state")]
    changed, set_by_host = (
        {name for i in indices for name in _variables(model, i, "ASSIGN_VARIABLE")} for indices in (training, restoring)
    )
    read = {name for i in signatures.values() for name in _variables(model, i, "READ_VARIABLE")}
    return sorted((changed & read) - set_by_host)


def _operators(model: Any, index: int) -> Iterator[tuple[str, Any]]:
    """Yield each op's kind and the op."""
    subgraph = model.Subgraphs(index)
    for i in range(subgraph.OperatorsLength()):
        operator = subgraph.Operators(i)
        code = model.OperatorCodes(operator.OpcodeIndex())
        custom = code.CustomCode()
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        yield custom.decode() if custom else _KINDS.get(number, str(number)), operator


def _variables(
    model: Any, index: int, wanted: str, given: Mapping[int, str] | None = None, callers: tuple[int, ...] = ()
) -> Iterator[str]:
    """Yield the variables that ops of one kind access, in a subgraph and in the subgraphs that it calls.

    Args:
        model: The flatbuffer's root.
        index: The subgraph's index.
        wanted: The kind of op.
        given: The variables that the caller passes, by the position of the input.
        callers: The chain of calling subgraphs; a damaged file may contain a cycle.
    """
    subgraph = model.Subgraphs(index)
    handles = {subgraph.Inputs(position): name for position, name in (given or {}).items()}
    for kind, operator in _operators(model, index):
        if kind == "VAR_HANDLE":
            handles[operator.Outputs(0)] = _options(operator, schema.VarHandleOptions()).SharedName().decode()
        elif kind == wanted and operator.Inputs(0) in handles:
            yield handles[operator.Inputs(0)]
        called, first = _called(kind, operator)
        passed = [operator.Inputs(i) for i in range(first, operator.InputsLength())] if called else []
        names = {position: handles[tensor] for position, tensor in enumerate(passed) if tensor in handles}
        for callee in {*called} - {*callers, index}:
            yield from _variables(model, callee, wanted, names, (*callers, index))


def _called(kind: str, operator: Any) -> tuple[list[int], int]:
    """Return the subgraphs that an op calls, and the position of the first input that it passes on."""
    if kind == "WHILE":
        loop = _options(operator, schema.WhileOptions())
        return [loop.CondSubgraphIndex(), loop.BodySubgraphIndex()], 0
    if kind == "IF":
        branches = _options(operator, schema.IfOptions())
        return [branches.ThenSubgraphIndex(), branches.ElseSubgraphIndex()], 1
    return ([_options(operator, schema.CallOptions()).Subgraph()] if kind == "CALL" else []), 0


def _options(operator: Any, options: Any) -> Any:
    table = operator.BuiltinOptions()
    options.Init(table.Bytes, table.Pos)
    return options
