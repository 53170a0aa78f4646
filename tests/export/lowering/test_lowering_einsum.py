"""Einsums as batch products of matrices."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from odt_sim.export.lowering import Trace, emit

SIZES = {"a": 2, "b": 3, "c": 4, "d": 5, "e": 2, "f": 6, "g": 3}
EQUATIONS = [
    *("bc,cf->bf", "bc,fc->fb", "cb,cf->bf", "cb,fc->bf", "bc,c->b", "c,cf->f", "c,c->", "b,f->fb", "be,fg->bgfe"),
    *("bc,cfg->bfg", "bce,fgc->bfge", "becd,dcf->fbe", "cd,dcf->f"),
    *("abc,acf->abf", "cab,fac->fab", "abc,ac->ab", "ac,ac->a", "ab,afg->gabf", "adbc,dacf->dabf", "acbd,adfc->afb"),
]


def _arrays(*labels: str) -> dict[str, Any]:
    random = np.random.default_rng(0)
    shapes = [[SIZES[label] for label in own] for own in labels]
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in zip("xy", shapes, strict=True)}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum_and_its_gradients_equal_tensorflow(same: Any, equation: str) -> None:
    def function(x: Any, y: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            z = tf.einsum(equation, x, y)
            total = tf.reduce_sum(z * z)
        return {"z": z, **dict(zip(("dx", "dy"), tape.gradient(total, [x, y]), strict=True))}

    same(function, atol=1e-4, **_arrays(*equation.partition("->")[0].split(",")))


@pytest.mark.parametrize(
    ("equation", "first", "second"),
    [
        ("...ij,...jk->...ik", (2, 3, 4), (1, 4, 5)),
        ("...ij,...jk->...ik", (3, 1, 2, 4), (2, 4, 5)),
        ("...ij,jk->...ik", (2, 3, 3, 4), (4, 5)),
        ("i...,...i->...", (4, 2, 3), (3, 4)),
    ],
)
def test_dots_broadcast(same: Any, equation: str, first: tuple[int, ...], second: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    arrays = {name: random.normal(size=shape).astype(np.float32) for name, shape in (("x", first), ("y", second))}
    same(lambda x, y: {"z": tf.einsum(equation, x, y)}, **arrays)


@pytest.mark.parametrize("equation", EQUATIONS)
def test_no_product_has_rank_2(equation: str) -> None:
    arrays = _arrays(*equation.partition("->")[0].split(","))
    specs = [tf.TensorSpec(array.shape, name=name) for name, array in arrays.items()]
    function = tf.function(lambda x, y: {"z": tf.einsum(equation, x, y)}, input_signature=specs, autograph=False)
    trace = Trace(function.get_concrete_function(), layers=())
    with tf.Graph().as_default() as graph:
        emit(trace, trace.live_operations(weights=()), {name: tf.constant(a) for name, a in arrays.items()}, {})
    operations = graph.get_operations()
    assert not {"Einsum", "MatMul"} & {op.type for op in operations}
    assert all(len(op.outputs[0].shape) > 2 for op in operations if op.type == "BatchMatMulV2")
