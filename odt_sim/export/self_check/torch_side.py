"""A PyTorch module as a side of the check: PyTorch computes outputs and gradients, Keras the loss and the new weights."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from odt_sim.export.self_check.keras_side import KerasSide
from odt_sim.export.self_check.side import Part
from odt_sim.export.torch.module import (
    STATISTICS,
    Module,
    bound_inputs,
    inputs_by_name,
    masks_given,
    no_caches,
)
from odt_sim.export.torch.nodes import as_keras


@dataclass(frozen=True)
class TorchSide(KerasSide):
    """A module, and the Keras model with its weights.

    Attributes:
        module: The module; `reset` gives it back its weights.
        example: An example of its inputs, as for `export_model`.
        draws: Whether it draws random numbers in training; the file draws as Keras does.
    """

    module: Any
    example: Any
    draws: bool

    @cached_property
    def buffers(self) -> dict[str, Any]:
        """The values before the check of buffers that are no weights, such as a count of batches."""
        weights = {id(tensor) for tensor, _ in self._pairs()}
        return {name: b.clone() for name, b in self.module.named_buffers() if id(b) not in weights}

    def reset(self, random: np.random.Generator | None = None) -> None:
        """Set all variables and the module to their values before the check; see `Reference`."""
        super().reset(random)
        self._write()
        for name, value in self.buffers.items():
            self.module.get_buffer(name).copy_(value)

    def outputs(self, part: Part, *, training: bool) -> Any:
        """Return the module's outputs, as TensorFlow tensors."""
        import torch

        with torch.no_grad(), self._mode(training=training):
            return keras.tree.map_structure(_from_torch, self._called(part))

    def gradients(self, part: Part, labels: Sequence[tf.Tensor], weight: tf.Tensor) -> tuple[tf.Tensor, Any]:
        """Return the loss and PyTorch's gradients by the trainable variables; Keras' where PyTorch cannot compute them."""
        import torch

        if self.draws or self.training.terms.terms:
            return super().gradients(part, labels, weight)
        pairs = self._pairs()
        learned = [tensor for tensor, _ in pairs if tensor.requires_grad]
        with torch.enable_grad(), self._mode(training=True):
            results = keras.tree.flatten(self._called(part))
            outputs = [_from_torch(result) for result in results]
            with tf.GradientTape() as tape:
                tape.watch(outputs)
                loss = self.loss(labels, outputs, weight)
                scaled = self.training.optimizer.scale_loss(loss)
            by_output = [
                (result, torch.from_numpy(gradient.numpy()))
                for result, gradient in zip(results, tape.gradient(scaled, outputs), strict=True)
                if gradient is not None and result.requires_grad
            ]
            reached, vectors = zip(*by_output, strict=True)
            gradients = torch.autograd.grad(reached, learned, vectors, allow_unused=True)
        by_tensor = {id(t): g for t, g in zip(learned, gradients, strict=True) if g is not None}
        by_variable = {id(v): _from_torch(by_tensor[id(t)]) for t, v in pairs if id(t) in by_tensor}
        self._read_statistics()
        return loss, [by_variable.get(id(v)) for v in self.model.trainable_variables]

    def _called(self, part: Part) -> Any:
        """Return the module's outputs for a part in the structure of a Keras model, with the variables' weights."""
        import torch
        from torch.utils._pytree import tree_leaves

        self._write()
        bound = bound_inputs(self.module, self.example, part.rows)
        values = iter([x.numpy() for x in keras.tree.flatten(self.features(part))])
        taken = {id(x): torch.as_tensor(next(values)).to(x.dtype) for x in inputs_by_name(bound).values()}
        arguments, named = torch.utils._pytree.tree_map(lambda x: taken[id(x)], (bound.args, bound.kwargs))
        returned = self.module(*arguments, **named)
        return as_keras(returned, tree_leaves(returned))

    @contextmanager
    def _mode(self, *, training: bool) -> Iterator[None]:
        """Put the module into a mode as the export does: parts in the other mode stay so if the module has the mode."""
        before = [(part, part.training) for part in self.module.modules()]
        if training != self.module.training:
            self.module.train(training)
        try:
            with masks_given(), no_caches(self.module):
                yield
        finally:
            for part, mode in before:
                part.training = mode

    def _pairs(self) -> list[tuple[Any, Any]]:
        """Return each weight and running statistic of the module with its variable."""
        (inner,) = (layer for layer in self.model.layers if isinstance(layer, Module))
        return [
            (getattr(self.module.get_submodule(layer.module_path), name), variable)
            for layer in inner.weights_of_layers
            for name, variable in layer.own.items()
        ]

    def _write(self) -> None:
        """Give the module the variables' values."""
        import torch

        for tensor, variable in self._pairs():
            tensor.data.copy_(torch.from_numpy(variable.numpy()))

    def _read_statistics(self) -> None:
        """Give the variables the module's running statistics."""
        statistics = {id(b) for name, b in self.module.named_buffers() if name.rpartition(".")[2] in STATISTICS}
        for tensor, variable in self._pairs():
            if id(tensor) in statistics:
                variable.assign(tensor.numpy())


def _from_torch(tensor: Any) -> tf.Tensor:
    values = tf.constant(tensor.detach().numpy())
    return tf.cast(values, tf.int32) if values.dtype.is_integer else values
