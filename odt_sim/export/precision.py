"""Compute mixed-precision models in float32, because LiteRT has no float16 kernels for training."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import keras
from keras.src.ops.core import Cast  # has no public name

from odt_sim.errors import ExportWarning
from odt_sim.export.parameters import all_layers

MIXED, HALF = ("mixed_float16", "mixed_bfloat16"), ("float16", "bfloat16")


def mixed_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """Return the layers that compute in float16 or bfloat16 with weights in float32."""
    return [layer for layer in all_layers(model) if layer.dtype_policy.name in MIXED]


def warn_of_mixed(model: keras.Model) -> None:
    """Warn that mixed-precision layers are computed in float32."""
    mixed = [layer for layer in mixed_layers(model) if layer._trainable_variables or layer._non_trainable_variables]
    if mixed:
        warnings.warn(
            f"model {model.name!r}: layers with the policy {mixed[-1].dtype_policy.name} ({len(mixed)} with weights) "
            "compute in float32 in the file; their weights are float32 in any case",
            ExportWarning,
            stacklevel=5,
        )


def with_float32_inputs(part: keras.Model) -> keras.Model:
    """Change the half-precision inputs of a part cut from a mixed-precision model to float32, and return the part."""
    for tensor in part.inputs:
        if tensor.dtype in HALF:
            tensor._dtype = "float32"
    return part


@contextmanager
def in_float32(model: keras.Model) -> Iterator[None]:
    """Give mixed-precision layers, including the casts of masks, the policy float32 while a model is traced."""
    before = [(layer, layer._dtype_policy) for layer in mixed_layers(model)]
    casts = [(cast, cast.dtype) for cast in (_half_casts(model) if before else ())]
    for layer, _ in before:
        layer._dtype_policy = keras.DTypePolicy("float32")
    for cast, _ in casts:
        cast.dtype = "float32"
    try:
        yield
    finally:
        for layer, policy in before:
            layer._dtype_policy = policy
        for cast, dtype in casts:
            cast.dtype = dtype


def _half_casts(model: keras.Model) -> list[Cast]:
    """Return the casts to half precision in graphs of layers, which Keras adds to compute masks."""
    graphs = [getattr(layer, "_functional", None) or layer for layer in all_layers(model)]  # inside a Sequential
    operations = [own for graph in graphs for own in getattr(graph, "operations", ())]
    return [own for own in operations if isinstance(own, Cast) and own.dtype in HALF]
