"""Export an unchanged Keras model as a trainable `.tflite` file."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import keras
import tensorflow as tf

from odt_sim._support.files import refuse_source, write_file
from odt_sim.errors import ExportError
from odt_sim.export.emit.convert import convert
from odt_sim.export.emit.flex import checkpoint_of, flex_signatures
from odt_sim.export.emit.signatures import Program, Signatures, emit_signatures, handle
from odt_sim.export.keras.checks import (
    check_captures,
    check_embed,
    check_flavour,
    check_groups,
    check_interface,
    check_model,
    counts_padding,
    warn_of_batch_losses,
    warn_of_mixing_layers,
)
from odt_sim.export.keras.interface import Subject, data_of, interface_of
from odt_sim.export.keras.masks import BlankFrames, warn_of_lost_masks, with_blank_frames
from odt_sim.export.keras.native_inference import native_inference
from odt_sim.export.keras.objective import Objective
from odt_sim.export.keras.optimizers import check_initial_slots, is_linear, optimizer_of, schedule_of, settings_of
from odt_sim.export.keras.output_losses import (
    Compiled,
    class_weight_of,
    endings_of,
    masked,
    objectives_of,
    outputs_of,
    settings_of_model,
)
from odt_sim.export.keras.own_steps import added_losses, optimizer_names, overrides_loss, own_method
from odt_sim.export.keras.parameters import (
    all_layers,
    group_of_layers,
    parameter_names,
    parameters_of,
    random_states_of,
    weights_of,
)
from odt_sim.export.keras.precision import quantized, with_int8_constants
from odt_sim.export.keras.split_model import check_not_random, split_before_head
from odt_sim.export.keras.stateful_random import untracked_states
from odt_sim.export.keras.steps import only, trace_infer, trace_losses, trace_options, trace_train
from odt_sim.export.keras.training import Training
from odt_sim.export.lowering import Trace
from odt_sim.export.self_check.exports import KerasExport, check_keras_export
from odt_sim.export.self_check.keras_side import KerasSide
from odt_sim.export.self_check.rows import rows_of
from odt_sim.export.self_check.torch_side import TorchSide
from odt_sim.export.sources import model_of
from odt_sim.export.terms import PROX, terms_of
from odt_sim.export.terms.applied import apply
from odt_sim.export.torch.module import inputs_and_targets, is_module
from odt_sim.model.contract.manifest import METADATA_NAME, NO_LOSS, Manifest
from odt_sim.model.editing.inference_only import INFERENCE
from odt_sim.model.editing.metadata import with_metadata
from odt_sim.model.trainable import DEFAULT_BATCH_SIZE


def export_model(
    source: keras.Model | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    loss: Any = None,
    optimizer: Any = None,
    loss_weights: Any = None,
    example: Any = None,
    batch_size: int | None = DEFAULT_BATCH_SIZE,
    name: str | None = None,
    head: str | Sequence[str] | None = None,
    class_weight: Mapping[int, float] | None = None,
    task: str | Mapping[str, str] | None = None,
    metrics: Sequence[str] | Mapping[str, Sequence[str]] = (),
    train_groups: Sequence[str] = (),
    embed: bool = False,
    gradient_offset: bool = False,
    terms: Sequence[Any] = (),
    flavour: str = "builtin",
    check: bool = True,
) -> Path:
    """Export a Keras model with its current weights as a `.tflite` file that trains on any LiteRT interpreter.

    The training step is traced as Keras runs it and emitted again with TFLite's built-in ops. The model and the optimizer
    stay unchanged. Layers with `trainable=False` stay frozen in the file.

    Args:
        source: A built Keras 3 Sequential or Functional model, or a path: a `.keras` or `.h5` file, or a SavedModel
            directory from `model.export` or an older `model.save`. A SavedModel trains its trainable variables through its
            serving signature: BatchNormalization keeps its statistics, Dropout is inactive. Several inputs and outputs are
            `x_<name>`, `y_<name>` and `logits_<name>` in the signatures, with Keras' names. Or a `torch.nn.Module`.
        path: The file to write.
        loss: The name of a loss in `keras.losses`, `{"name": ..., **settings}`, a Keras loss object, or a function
            `(y_true, y_pred)` that returns a value per example. A cross-entropy given by name treats the model's output
            as logits unless the model ends in a softmax (binary: a sigmoid). For several outputs: one for all, a list,
            or a mapping by the output's name. None uses that of `model.compile`.
        optimizer: A Keras optimizer, its name, or a mapping of `name` and settings; None uses that of `model.compile`.
            Its learning rate becomes the default in the manifest; the rate is an input of `train`. A schedule becomes
            the signature `schedule`, from `step` to `learning_rate`; moving averages (`use_ema`) become the signature
            `finalize`, which ends a training.
        loss_weights: The factor of each output's loss: a list, or a mapping by the output's name; None for 1.
        example: A batch `(x, y)`, `(x,)` or `x` as for `fit`: arrays, or anything with their shapes and dtypes, such as
            `keras.Input`. It is used to build a model with its own `call`, to fix open input shapes, and for the shape
            of `y` if the loss leaves it open; only the check uses its values. For a `torch.nn.Module`: an example of its
            input `[rows, ...]`, a tuple of several, or a mapping by the names of `forward`'s arguments; to give targets
            as well, a pair of a tuple or mapping of the inputs and `y`: `((x,), y)`.
        batch_size: Rows per call of `train` and `infer`; None accepts any number and records `DEFAULT_BATCH_SIZE` as the
            rows of a device's step.
        name: The model's name in the manifest; None uses Keras' name.
        head: The layer or layers of the head; a nested model's name selects all of its layers, a path such as
            `decoder/conv` one of them, and a pattern such as `decoder_*` all that match. None for the last layer with
            weights that is not a normalization, for several outputs the last one of each.
        class_weight: A factor per class on its examples' training losses; missing classes get 1.
        task: What the output is, for the metrics of evaluation: `classification`, `segmentation`, `regression`,
            `multi_label`, `ranking`, `transcription` or `other`; None derives it from the loss, and your own loss is
            `other`. For several outputs, also a mapping by the output's name.
        metrics: The names of further metrics for evaluation, from odt_sim or Keras (docs/evaluation.md); for several
            outputs, also a mapping by the output's name. Metrics of `model.compile` are kept if odt_sim can compute
            them.
        train_groups: Parameter groups that get their own signature `train_<group>`: `head`, `body`, `norm`, or several
            joined by `_`, such as `body_norm`.
        embed: Add `embed`, from `x` to the `embedding` that enters the head, and `head_train` and `head_infer`, which
            take an `embedding` instead of `x`. The features of a frozen body are then computed once per example.
        gradient_offset: Add `set_gradient_offset`, which sets b per trainable parameter, and the input `mu` of each
            training step: steps then use g + mu w + b instead of the gradient g.
        terms: Terms to add to the loss of every step, with further inputs of `train`, which devices pass with
            `Device.train(inputs=...)`: `contrastive`, `distillation`, `logit_shift`,
            `mean_embedding`, `not_true_distillation`, `prototypes`, or your own function
            `(model, x, y, inputs) -> loss`, or its path; see `odt_sim.export.terms`. `prox` is `gradient_offset=True`.
        flavour: `builtin`, or `flex` for a file that needs TensorFlow 2.19 or an app with the Select TF ops library.
            In `flex`, nothing is lowered, `save` and `restore` take a `checkpoint_path`, `set_parameters` takes `a0..aN`,
            and each training step also returns the gradients of the loss (before clipping, decay and offset) under the
            parameters' names in the manifest, such as `cnn/dense/kernel`.
        check: Whether to compare the file with the model before it is written: inference, a step on a partial batch and one
            on a full batch, on the example's values or on random rows. The comparison takes up to a fifth of the export's
            time, or a second. Files of the flavour `flex` are never compared, because LiteRT cannot run them.

    Returns:
        The path of the file.

    Raises:
        ExportError: The model, the loss or the optimizer cannot be exported, or the file differs from the model.
        FileError: The file cannot be written, or is the source.
    """
    started = perf_counter()
    if isinstance(source, str | os.PathLike):
        refuse_source(Path(path), Path(source))
    given = Example.of(source, example)
    subject = _subject(source, given, batch_size, head, compiled=loss is None or optimizer is None)
    model, flex = subject.model, flavour == "flex"
    check_flavour(model, flavour)
    check_groups(subject, train_groups)
    added = terms_of(terms)
    optimizer_names(model)
    if embed:
        check_embed(model)
    compiled = settings_of_model(model, loss, loss_weights, optimizer)
    schedule, built = schedule_of(compiled.optimizer), _optimizer(model, compiled.optimizer, flex=flex)
    subject, infer, objectives = _objectives(subject, compiled, given)
    model = subject.model  # which may have further layers
    offsets = gradient_offset or PROX in terms
    training = Training(
        objectives,
        built,
        {id(v): tf.Variable(tf.zeros(v.shape)) for v in model.weights if v.trainable} if offsets else {},
        class_weight_of(class_weight, objectives, subject.interface),
        dict(zip(map(id, weights_of(model)), parameter_names(model), strict=True)) if flex else {},
        apply(added, subject, objectives),
        dense=is_module(source) and not is_linear(built),
    )
    traces = {"infer": infer, **_trace_steps(subject, training, train_groups)}
    warn_of_batch_losses(model, batch_size)
    padding_counts = counts_padding(model, batch_size)
    traces |= _trace_halves(subject, training) if embed else {}
    traces |= trace_options(model, built, schedule)
    traces |= {"loss": trace_losses(subject, training)} if _needs_losses(model, objectives) else {}
    check_captures(traces)
    program = _program(model, training, traces)
    signatures = _flex_signatures(model, program, built) if flex else emit_signatures(program)
    content = convert(signatures, flex=flex)
    content = with_int8_constants(content) if quantized(model) and not flex else content
    if check and not flex:
        reference = _reference(subject, training, program, signatures, source, given)
        rows = rows_of(model, subject.interface, objectives, given.data)
        exported = KerasExport(content, program, reference, rows, batch_size, padding_counts)
        check_keras_export(exported, perf_counter() - started)
    inference = None if flex or quantized(model) else native_inference(program)
    names = subject.interface.input_names
    manifest = Manifest(
        name=name or model.name,
        parameters=parameters_of(model, subject.groups),
        loss=objectives[0].name,
        from_logits=objectives[0].from_logits,
        optimizer={**settings_of(built, schedule), **_constraints(model)},
        batch_size=DEFAULT_BATCH_SIZE if batch_size is None else batch_size,
        random_states=signatures.random_states,
        delta=objectives[0].delta,
        inputs=names if len(names) > 1 else ("x",),
        outputs=outputs_of(objectives, subject.interface, task, metrics),
        train_inputs=training.terms.declared,
        checked=check or flex,
    )
    content = with_metadata(content, INFERENCE, inference) if inference else content
    write_file(Path(path), with_metadata(content, METADATA_NAME, manifest.to_json().encode()))
    return Path(path)


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


def _subject(source: Any, example: Example, batch_size: int | None, head: Any, *, compiled: bool) -> Subject:
    """Load and check the model, and find its inputs, outputs and groups of layers."""
    model = model_of(source, example.inputs, batch_size, compiled=compiled)
    check_model(model, batch_size)
    interface = interface_of(model, example.features)
    check_interface(model, interface)
    return Subject(model, interface, group_of_layers(model, head), batch_size)


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


def _trace_steps(subject: Subject, training: Training, alone: Sequence[str]) -> dict[str, Trace]:
    """Trace the training step of the whole model, and one step for each group that can train separately."""
    traces = {"train": trace_train(subject, training)}
    for group in alone:
        with only(subject.model, subject.layers(group.split("_"))):
            traces[f"train_{group}"] = trace_train(subject, training)
    return traces


def _trace_halves(subject: Subject, training: Training) -> dict[str, Trace]:
    """Trace `embed`, and the training and inference of the head on embeddings."""
    if training.by_model:
        raise ExportError("embed: the model's layers compute the loss from x; leave embed out")
    if any(objective.masked for objective in training.objectives) or any(
        isinstance(layer, BlankFrames) for layer in subject.model.layers
    ):
        raise ExportError("embed: the model's output carries a mask of x, which embeddings lack; leave embed out")
    lower, upper = split_before_head(subject.model, subject.groups)
    outputs = subject.interface.output_names
    body = replace(subject, model=lower, interface=interface_of(lower))
    head = replace(subject, model=upper, interface=replace(interface_of(upper), output_names=outputs))
    with only(subject.model, subject.layers(["head"])):
        check_not_random(lower, trace_infer(body, training=True))
        head_train = trace_train(head, training, x="embedding")
    return {
        "embed": trace_infer(body, output="embedding"),
        "head_train": head_train,
        "head_infer": trace_infer(head, x="embedding"),
    }


def _needs_losses(model: keras.Model, objectives: Sequence[Objective]) -> bool:
    """Return whether the file gets the signature `loss`, because evaluation has no formula for the loss."""
    evaluated = all(objective.name != NO_LOSS for objective in objectives)
    return evaluated and (len(objectives) > 1 or not objectives[0].on_host or overrides_loss(model))


def _program(model: keras.Model, training: Training, traces: Mapping[str, Trace]) -> Program:
    optimizer, weights, generators = training.optimizer, weights_of(model), random_states_of(model)
    counts = [v for v in model.weights if all(v is not weight for weight in weights)]
    generators = [*generators, *untracked_states(traces, {handle(v) for v in generators})]
    return Program(
        traces=traces,
        weights=weights,
        states=[*(v for v in optimizer.variables if v is not optimizer.learning_rate), *counts, *generators],
        generators=generators,
        offsets=list(training.offsets.values()),
        inputs={"learning_rate": optimizer.learning_rate},
    )


def _flex_signatures(model: keras.Model, program: Program, optimizer: keras.optimizers.Optimizer) -> Signatures:
    return flex_signatures(program, checkpoint_of(model, optimizer, program.generators))


def _reference(
    subject: Subject, training: Training, program: Program, signatures: Signatures, source: Any, example: Example
) -> KerasSide:
    """Return the model or the PyTorch module that the file is compared with."""
    named = program.variables_by_name(signatures.slots)
    if not is_module(source):
        return KerasSide(subject.model, subject.interface, training, named)
    draws = bool(signatures.random_states)
    return TorchSide(subject.model, subject.interface, training, named, source, example.inputs, draws)


def _constraints(model: keras.Model) -> dict[str, bool]:
    """Return the manifest entry for constrained weights: their step does more than the optimizer's rule."""
    return {"constraints": True} if any(v.constraint is not None for v in model.trainable_weights) else {}
