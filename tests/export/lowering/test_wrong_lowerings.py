"""The check of exports finds a wrong lowering in each family, and none in the right ones."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from single_ops import OPS, Call
from wrong_lowerings import scaled

from odt_sim.export.emit.convert import convert
from odt_sim.export.emit.signatures import Program, emit_signatures
from odt_sim.export.lowering import Trace
from odt_sim.export.lowering.registry import LOWERINGS
from odt_sim.export.self_check.agreement import disagreement
from odt_sim.export.self_check.file_side import FileSide
from odt_sim.export.self_check.function_side import FunctionSide
from odt_sim.export.self_check.locating import READS, first_parting
from odt_sim.export.self_check.side import Part


def outputs_of(call: Call, *values: tf.Tensor) -> dict[str, tf.Tensor]:
    result = call.function(*values)
    return {f"y{i}": y for i, y in enumerate(result if isinstance(result, list) else [result])}


def ops_of(concrete: tf.types.experimental.ConcreteFunction, op_type: str) -> list[tf.Operation]:
    return [op for op in concrete.graph.get_operations() if op.type == op_type]


def one_call(op_type: str) -> tuple[Program, Part] | None:
    """Return the first call of an op with a finite float result other than 0, and its inputs; None without one."""
    for call in (call for call in OPS[op_type]() if call.tolerance <= 1e-5):
        inputs = {f"x{i}": np.asarray(x) for i, x in enumerate(call.inputs)}
        specs = [tf.TensorSpec(x.shape, x.dtype, name) for name, x in inputs.items()]
        function = tf.function(partial(outputs_of, call), input_signature=specs, autograph=False)
        concrete = function.get_concrete_function()
        outputs = concrete(*map(tf.constant, inputs.values())).values()
        floats = any(t.dtype == tf.float32 for op in ops_of(concrete, op_type) for t in op.outputs)
        if floats and any(y.dtype == tf.float32 and 0 < np.abs(y).sum() < np.inf for y in outputs):
            program = Program({"call": Trace(concrete, layers=())}, list(concrete.graph.variables))
            return program, Part("call", "a call", {}, inputs, 1)
    return None


def constant(parts: Sequence[Part], number: int, positive: bool) -> Sequence[Part]:
    return parts


FAMILIES = sorted({lowering.__module__ for lowering in LOWERINGS.values()})


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.rpartition(".")[2])
def test_wrong_lowering_of_each_family_is_found(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called = [
        (op_type, one_call(op_type))
        for op_type, lowering in LOWERINGS.items()
        if lowering.__module__ == family and op_type in OPS
    ]
    tried = 0
    for op_type, pair in called:
        if pair is None:
            continue  # computes integers only
        tried += 1
        program, part = pair
        for lowering, differs in ((LOWERINGS[op_type], False), (scaled(op_type), True)):
            monkeypatch.setitem(LOWERINGS, op_type, lowering)
            content = convert(emit_signatures(program))
            reference = FunctionSide(program, {})
            found = disagreement(partial(FileSide, content), reference, partial(constant, [part]), 9.0)
            assert (found is not None) == differs, op_type
            if differs and op_type not in READS:
                assert first_parting(program, reference, [part]) is not None
        monkeypatch.undo()
    assert tried or all(pair is None for _, pair in called)
