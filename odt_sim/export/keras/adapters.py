"""Low-rank adapters on a Keras model (LoRA)."""

from collections.abc import Sequence
from typing import Any

import keras

from odt_sim.errors import ExportError
from odt_sim.export.keras.parameters import all_layers, group_of_layers, leaf_layers


def add_adapters(model: Any, rank: int, head: str | Sequence[str] | None = None) -> keras.Model:
    """Freeze a built Keras model except its head, and add adapters to the layers below; change it in place and return it.

    Dense, EinsumDense, Embedding and convolution layers, including those of attention, get `W + A B` with a frozen
    kernel W, as with Keras' `enable_lora`: Hu et al. 2022, LoRA, section 4.1, with alpha equal to the rank. B starts at
    0, so the model's outputs are initially unchanged.

    Args:
        model: The model.
        rank: The number of columns of A and of rows of B.
        head: The layer or layers of the head, see `export_model`; it trains as a whole.

    Raises:
        ExportError: The model is not a built Keras model, has no layer below the head that accepts adapters, or already
            has adapters.
    """
    if not isinstance(model, keras.Model) or not model.built:
        raise ExportError(
            f"lora_rank: expected a built Keras model, found {type(model).__name__}; add the adapters in the "
            "function that builds it, or choose another strategy"
        )
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
        raise ExportError(f"lora_rank: expected a whole number of at least 1, found {rank!r}")
    groups = group_of_layers(model, head)
    below = [layer for layer in leaf_layers(model) if groups.get(id(layer)) != "head"]
    taking = [
        inner for layer in below for inner in all_layers(layer) if inner.weights and hasattr(inner, "enable_lora")
    ]
    if not taking:
        raise ExportError(
            f"lora_rank: model {model.name!r} has no Dense, EinsumDense, Embedding or convolution below its head; leave it "
            "out, or choose another strategy"
        )
    adapted = [layer.name for layer in taking if layer.lora_enabled]
    if adapted:
        raise ExportError(
            f"lora_rank: layer {adapted[0]!r} of model {model.name!r} already has adapters; set strategy.rank to their rank, "
            "or build the model without them"
        )
    for variable in model._trainable_variables:  # weights that a model class adds itself
        variable.trainable = False
    adapt(below, taking, rank)
    return model


def adapt(frozen: Sequence[keras.layers.Layer], adapted: Sequence[keras.layers.Layer], rank: int) -> None:
    """Freeze layers, and add trainable adapters to some of them."""
    for layer in frozen:
        layer.trainable = False
    for layer in adapted:
        layer.trainable = True
        layer.enable_lora(rank)  # freezes the kernel
        if getattr(layer, "bias", None) is not None:
            layer.bias.trainable = False
