"""The settled training of an export: its model, the loss of each output, the optimizer, and what is added."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from odt_sim.export.keras.checks import check_embed, check_groups, check_interface, check_model, warn_of_mixing_layers
from odt_sim.export.keras.interface import Subject, data_of, interface_of
from odt_sim.export.keras.masks import warn_of_lost_masks, with_blank_frames
from odt_sim.export.keras.objective import Objective
from odt_sim.export.keras.optimizers import check_initial_slots, is_linear, optimizer_of, schedule_of
from odt_sim.export.keras.output_losses import (
    Compiled,
    class_weight_of,
    endings_of,
    masked,
    objectives_of,
    settings_of_model,
)
from odt_sim.export.keras.own_steps import added_losses, optimizer_names, overrides_loss, own_method
from odt_sim.export.keras.parameters import all_layers, group_of_layers, parameter_names, weights_of
from odt_sim.export.keras.steps import trace_infer
from odt_sim.export.keras.training import Training
from odt_sim.export.lowering import Trace
from odt_sim.export.sources import model_of
from odt_sim.export.terms import PROX, terms_of
from odt_sim.export.terms.applied import apply
from odt_sim.export.torch.module import inputs_and_targets, is_module


@dataclass(frozen=True)
class Settings:
    """What the caller of `export_model` wants; see there."""

    source: Any
    path: Path
    loss: Any
    optimizer: Any
    loss_weights: Any
    batch_size: int | None
    name: str | None
    head: Any
    class_weight: Any
    task: Any
    metrics: Any
    train_groups: Sequence[str]
    embed: bool
    gradient_offset: bool
    terms: Sequence[Any]
    flex: bool
    check: bool


@dataclass(frozen=True)
class Example:
    """A batch of the caller.

    Attributes:
        inputs: The inputs of a PyTorch module, else the example itself.
        data: The example as `(x, y)` for a PyTorch module, else as given.
        features: The specs of the inputs of a Keras model in their structure; None if not given.
        targets: The specs of the targets; None if not given.
    """

    inputs: Any
    data: Any
    features: Any
    targets: list[tf.TensorSpec] | None

    @classmethod
    def of(cls, source: Any, example: Any) -> "Example":
        """Return the example of a source."""
        if not is_module(source):
            return cls(example, example, *data_of(example))
        inputs, y = inputs_and_targets(example)
        return cls(inputs, (inputs, y), None, data_of((inputs, y))[1])


@dataclass(frozen=True)
class Job:
    """An export whose training is settled, as all stages that follow take it.

    Attributes:
        settings: What the caller wants.
        example: A batch of the caller.
        subject: The model, with its inputs and outputs.
        infer: Its traced inference.
        training: Its losses and its built optimizer.
        schedule: The learning rates of the steps; None for one rate.
    """

    settings: Settings
    example: Example
    subject: Subject
    infer: Trace
    training: Training
    schedule: Any


def loaded(settings: Settings, example: Example) -> Subject:
    """Load and check the model, and find its inputs, outputs and groups of layers."""
    compiled = settings.loss is None or settings.optimizer is None
    model = model_of(settings.source, example.inputs, settings.batch_size, compiled=compiled)
    check_model(model, settings.batch_size)
    interface = interface_of(model, example.features)
    check_interface(model, interface)
    return Subject(model, interface, group_of_layers(model, settings.head), settings.batch_size)


def settled(settings: Settings, example: Example, subject: Subject) -> Job:
    """Choose the optimizer, the loss of each output, and what is added to them."""
    check_groups(subject, settings.train_groups)
    added = terms_of(settings.terms)
    optimizer_names(subject.model)
    if settings.embed:
        check_embed(subject.model)
    compiled = settings_of_model(subject.model, settings.loss, settings.loss_weights, settings.optimizer)
    schedule = schedule_of(compiled.optimizer)
    optimizer = _optimizer(subject.model, compiled.optimizer, flex=settings.flex)
    subject, infer, objectives = _objectives(subject, compiled, example)
    model = subject.model  # which may have further layers
    offsets = settings.gradient_offset or PROX in settings.terms
    names = zip(map(id, weights_of(model)), parameter_names(model), strict=True)
    training = Training(
        objectives,
        optimizer,
        {id(v): tf.Variable(tf.zeros(v.shape)) for v in model.weights if v.trainable} if offsets else {},
        class_weight_of(settings.class_weight, objectives, subject.interface),
        dict(names) if settings.flex else {},
        apply(added, subject, objectives),
        dense=is_module(settings.source) and not is_linear(optimizer),
    )
    return Job(settings, example, subject, infer, training, schedule)


def _objectives(subject: Subject, compiled: Compiled, example: Example) -> tuple[Subject, Trace, tuple[Objective, ...]]:
    """Return the model to trace, its traced inference, and the loss of each output."""
    infer, interface = trace_infer(subject, masks_too=True), subject.interface
    objectives = objectives_of(
        compiled,
        interface,
        endings_of(infer),
        subject.batch_size,
        example.targets,
        own=_computes_loss(subject, compiled),
        evaluated=overrides_loss(subject.model),
        alone=example.features is not None and example.targets is None,
    )
    objectives = masked(objectives, interface, infer)
    if framed := with_blank_frames(subject.model, objectives):
        subject = replace(subject, model=framed)
        infer = trace_infer(subject, masks_too=True)
        objectives = masked(objectives, interface, infer)
    warn_of_lost_masks(subject.model, objectives, interface)
    warn_of_mixing_layers(subject.model)
    return subject, infer, objectives


def _computes_loss(subject: Subject, compiled: Compiled) -> bool:
    """Return whether the model's class or, if it has no other loss, its layers compute the loss of a step."""
    if own_method(subject.model) is not None or compiled.loss is not None:
        return own_method(subject.model) is not None
    trace_infer(subject, training=True)
    return any(map(added_losses, all_layers(subject.model)))


def _optimizer(model: keras.Model, given: Any, *, flex: bool) -> keras.optimizers.Optimizer:
    """Return the caller's optimizer, built for a model."""
    make = partial(optimizer_of, given, scales_loss=flex)
    optimizer = make()
    optimizer.build(model.trainable_variables)
    check_initial_slots(optimizer, model.trainable_variables, make)
    return optimizer
