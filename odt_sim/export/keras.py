"""Export an unchanged Keras model as a trainable `.tflite` file."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import keras
import tensorflow as tf

from odt_sim._support.checks import names_arguments
from odt_sim._support.files import refuse_source, write_file
from odt_sim.errors import ExportError
from odt_sim.export.blank_frames import BlankFrames, with_blank_frames
from odt_sim.export.compiled import Compiled, settings_of_model
from odt_sim.export.convert import convert
from odt_sim.export.endings import endings_of
from odt_sim.export.flex import checkpoint_of, flex_signatures
from odt_sim.export.initial_slots import check_initial_slots
from odt_sim.export.interface import Interface, data_of, interface_of
from odt_sim.export.lean_tracing import lean_tracing
from odt_sim.export.lost_masks import warn_of_lost_masks
from odt_sim.export.lowering import Trace
from odt_sim.export.mixing_layers import counts_padding, warn_of_batch_losses, warn_of_mixing_layers
from odt_sim.export.model_checks import (
    check_captures,
    check_embed,
    check_flavour,
    check_groups,
    check_interface,
    check_model,
)
from odt_sim.export.native_inference import native_inference
from odt_sim.export.optimizers import is_linear, optimizer_of, schedule_of, settings_of
from odt_sim.export.option_signatures import trace_options
from odt_sim.export.output_losses import class_weight_of, masked, objectives_of, outputs_of
from odt_sim.export.own_steps import adds_losses, optimizer_names, overrides_loss, own_method
from odt_sim.export.parameters import (
    group_of_layers,
    leaf_layers,
    parameter_names,
    parameters_of,
    random_states_of,
    weights_of,
)
from odt_sim.export.pytorch.module import inputs_and_targets, is_module
from odt_sim.export.quantization import quantized, with_int8_constants
from odt_sim.export.self_check.exports import KerasExport, check_keras_export
from odt_sim.export.self_check.keras_side import KerasSide
from odt_sim.export.self_check.rows import rows_of
from odt_sim.export.self_check.torch_side import TorchSide
from odt_sim.export.signatures import Program, emit_signatures, handle
from odt_sim.export.sources import model_of
from odt_sim.export.split_model import check_not_random, split_before_head
from odt_sim.export.stateful_random import untracked_states
from odt_sim.export.steps import only, trace_infer, trace_losses, trace_train
from odt_sim.export.terms import PROX, terms_of
from odt_sim.export.terms.applied import apply
from odt_sim.export.training import Training
from odt_sim.model.flatbuffer import fingerprint
from odt_sim.model.inference_only import INFERENCE
from odt_sim.model.manifest import METADATA_NAME, NO_LOSS, Manifest
from odt_sim.model.metadata import with_metadata
from odt_sim.model.trainable import DEFAULT_BATCH_SIZE


@lean_tracing()
@names_arguments
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
            `Device.train(inputs=...)`: `category_embedding`, `contrastive`, `distillation`, `logit_shift`,
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
    inputs, y = inputs_and_targets(example) if is_module(source) else (example, None)
    model = model_of(source, inputs, batch_size, compiled=loss is None or optimizer is None)
    check_model(model, batch_size)
    features, targets = (None, data_of((inputs, y))[1]) if is_module(source) else data_of(example)
    interface = interface_of(model, features)
    check_interface(model, interface)
    check_flavour(model, flavour)
    groups = group_of_layers(model, head)
    check_groups(model, groups, train_groups)
    own_terms, gradient_offset = terms_of(terms), gradient_offset or PROX in terms
    optimizer_names(model)
    if embed:
        check_embed(model)
    flex = flavour == "flex"
    compiled = settings_of_model(model, loss, loss_weights, optimizer)
    schedule, optimizer = schedule_of(compiled.optimizer), _optimizer(model, compiled.optimizer, flex=flex)
    infer = trace_infer(model, interface, batch_size, masks_too=True)
    objectives = objectives_of(
        compiled,
        interface,
        endings_of(infer),
        batch_size,
        targets,
        own=_computes_loss(model, compiled, interface, batch_size),
        evaluated=overrides_loss(model),
        alone=features is not None and targets is None,
    )
    objectives = masked(objectives, interface, infer)
    if framed := with_blank_frames(model, objectives):
        model = framed
        infer = trace_infer(model, interface, batch_size, masks_too=True)
        objectives = masked(objectives, interface, infer)
    warn_of_lost_masks(model, objectives, interface)
    warn_of_mixing_layers(model)
    offsets = {id(v): tf.Variable(tf.zeros(v.shape)) for v in model.weights if v.trainable} if gradient_offset else {}
    names = dict(zip(map(id, weights_of(model)), parameter_names(model), strict=True)) if flex else {}
    factors = class_weight_of(class_weight, objectives, interface)
    applied = apply(own_terms, model, interface, groups, objectives)
    dense = is_module(source) and not is_linear(optimizer)
    training = Training(objectives, optimizer, offsets, factors, names, applied, dense=dense)
    traces = {"infer": infer, **_trace_steps(model, interface, groups, training, batch_size, train_groups)}
    warn_of_batch_losses(model, batch_size)
    padding_counts = counts_padding(model, batch_size)
    traces |= _trace_halves(model, interface, groups, training, batch_size) if embed else {}
    traces |= trace_options(model, optimizer, schedule)
    evaluated = all(objective.name != NO_LOSS for objective in objectives)
    if evaluated and (len(objectives) > 1 or not objectives[0].on_host or overrides_loss(model)):
        traces["loss"] = trace_losses(model, interface, training, batch_size)
    check_captures(traces)
    program = _program(model, training, traces)
    signatures = (
        flex_signatures(program, checkpoint_of(model, optimizer, program.generators))
        if flex
        else emit_signatures(program)
    )
    content = convert(signatures, flex=flex)
    content = with_int8_constants(content) if quantized(model) and not flex else content
    if check and not flex:
        named = program.variables_by_name(signatures.slots)
        reference = (
            TorchSide(model, interface, training, named, source, inputs, bool(signatures.random_states))
            if is_module(source)
            else KerasSide(model, interface, training, named)
        )
        rows = rows_of(model, interface, objectives, (inputs, y) if is_module(source) else example)
        export = KerasExport(content, program, reference, rows, batch_size, padding_counts)
        check_keras_export(export, perf_counter() - started)
    inference = None if flex or quantized(model) else native_inference(program)
    manifest = Manifest(
        name=name or model.name,
        parameters=parameters_of(model, groups),
        loss=objectives[0].name,
        from_logits=objectives[0].from_logits,
        optimizer={**settings_of(optimizer, schedule), **_constraints(model)},
        batch_size=DEFAULT_BATCH_SIZE if batch_size is None else batch_size,
        fingerprint=fingerprint(content),
        random_states=signatures.random_states,
        delta=objectives[0].delta,
        inputs=interface.input_names if len(interface.input_names) > 1 else ("x",),
        outputs=outputs_of(objectives, interface, task, metrics),
        train_inputs=applied.declared,
        checked=check or flex,
    )
    content = with_metadata(content, INFERENCE, inference) if inference else content
    write_file(Path(path), with_metadata(content, METADATA_NAME, manifest.to_json().encode()))
    return Path(path)


def _computes_loss(model: keras.Model, compiled: Compiled, interface: Interface, batch_size: int | None) -> bool:
    """Return whether the model's class or, if it has no other loss, its layers compute the loss of a step."""
    if own_method(model) is not None or compiled.loss is not None:
        return own_method(model) is not None
    trace_infer(model, interface, batch_size, training=True)
    return adds_losses(model)


def _optimizer(model: keras.Model, given: Any, *, flex: bool) -> keras.optimizers.Optimizer:
    """Return the caller's optimizer, built for a model."""
    make = partial(optimizer_of, given, scales_loss=flex)
    optimizer = make()
    optimizer.build(model.trainable_variables)
    check_initial_slots(optimizer, model.trainable_variables, make)
    return optimizer


def _trace_steps(
    model: keras.Model,
    interface: Interface,
    groups: Mapping[int, str],
    training: Training,
    batch_size: int | None,
    alone: Sequence[str],
) -> dict[str, Trace]:
    """Trace the training step of the whole model, and one step for each group that can train separately."""
    traces = {"train": trace_train(model, interface, training, batch_size)}
    for group in alone:
        with only(model, [layer for layer in leaf_layers(model) if groups.get(id(layer)) in group.split("_")]):
            traces[f"train_{group}"] = trace_train(model, interface, training, batch_size)
    return traces


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


def _constraints(model: keras.Model) -> dict[str, bool]:
    """Return the manifest entry for constrained weights: their step does more than the optimizer's rule."""
    return {"constraints": True} if any(v.constraint is not None for v in model.trainable_weights) else {}


def _trace_halves(
    model: keras.Model, interface: Interface, groups: Mapping[int, str], training: Training, batch_size: int | None
) -> dict[str, Trace]:
    """Trace `embed`, and the training and inference of the head on embeddings."""
    if training.by_model:
        raise ExportError("embed: the model's layers compute the loss from x; leave embed out")
    if any(objective.masked for objective in training.objectives) or any(
        isinstance(layer, BlankFrames) for layer in model.layers
    ):
        raise ExportError("embed: the model's output carries a mask of x, which embeddings lack; leave embed out")
    body, head = split_before_head(model, groups)
    features = interface_of(body)
    classifier = replace(interface_of(head), output_names=interface.output_names)
    with only(model, [layer for layer in leaf_layers(model) if groups.get(id(layer)) == "head"]):
        check_not_random(body, trace_infer(body, features, batch_size, training=True))
        head_train = trace_train(head, classifier, training, batch_size, x="embedding")
    return {
        "embed": trace_infer(body, features, batch_size, output="embedding"),
        "head_train": head_train,
        "head_infer": trace_infer(head, classifier, batch_size, x="embedding"),
    }
