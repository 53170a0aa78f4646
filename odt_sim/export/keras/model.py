"""Export an unchanged Keras model as a trainable `.tflite` file."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import keras

from odt_sim._support.files import refuse_source, write_file
from odt_sim.errors import ExportError
from odt_sim.export.emit.convert import convert
from odt_sim.export.emit.flex import checkpoint_of, flex_signatures
from odt_sim.export.emit.signatures import Program, Signatures, emit_signatures, handle
from odt_sim.export.keras.checks import check_captures, check_flavour, counts_padding, warn_of_batch_losses
from odt_sim.export.keras.interface import Subject, interface_of
from odt_sim.export.keras.job import Example, Job, Settings, loaded, settled
from odt_sim.export.keras.masks import BlankFrames
from odt_sim.export.keras.native_inference import native_inference
from odt_sim.export.keras.objective import Objective
from odt_sim.export.keras.optimizers import settings_of
from odt_sim.export.keras.output_losses import outputs_of
from odt_sim.export.keras.own_steps import overrides_loss
from odt_sim.export.keras.parameters import parameters_of, random_states_of, weights_of
from odt_sim.export.keras.precision import quantized, with_int8_constants
from odt_sim.export.keras.split_model import check_not_random, split_before_head
from odt_sim.export.keras.stateful_random import untracked_states
from odt_sim.export.keras.steps import (
    only,
    trace_finalize,
    trace_infer,
    trace_losses,
    trace_schedule,
    trace_train,
)
from odt_sim.export.keras.training import Training
from odt_sim.export.lowering import Trace
from odt_sim.export.self_check.exports import KerasExport, check_keras_export
from odt_sim.export.self_check.keras_side import KerasSide
from odt_sim.export.self_check.rows import rows_of
from odt_sim.export.self_check.torch_side import TorchSide
from odt_sim.export.torch.module import is_module
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
    settings = Settings(
        source=source,
        path=Path(path),
        loss=loss,
        optimizer=optimizer,
        loss_weights=loss_weights,
        batch_size=batch_size,
        name=name,
        head=head,
        class_weight=class_weight,
        task=task,
        metrics=metrics,
        train_groups=train_groups,
        embed=embed,
        gradient_offset=gradient_offset,
        terms=terms,
        flex=flavour == "flex",
        check=check and flavour != "flex",
    )
    given = Example.of(source, example)
    subject = loaded(settings, given)
    check_flavour(subject.model, flavour)
    job = settled(settings, given, subject)
    traces, padding_counts = _traces(job)
    program = _program(job, traces)
    signatures, content = _emitted(job, program)
    if settings.check:
        rows = rows_of(job.subject.model, job.subject.interface, job.training.objectives, given.data)
        reference = _reference(job, program, signatures)
        exported = KerasExport(content, program, reference, rows, batch_size, padding_counts)
        check_keras_export(exported, perf_counter() - started)
    write_file(settings.path, _described(job, program, signatures, content))
    return settings.path


def _traces(job: Job) -> tuple[dict[str, Trace], bool]:
    """Trace each signature: steps of the whole model and of single groups, inference, and those that options add.

    Also return whether the steps are known to count padding rows.
    """
    subject, training = job.subject, job.training
    model, optimizer = subject.model, training.optimizer
    traces = {"infer": job.infer, "train": trace_train(subject, training)}
    for group in job.settings.train_groups:
        with only(model, subject.layers(group.split("_"))):
            traces[f"train_{group}"] = trace_train(subject, training)
    warn_of_batch_losses(model, subject.batch_size)
    padding_counts = counts_padding(model, subject.batch_size)
    if job.settings.embed:
        traces |= _trace_halves(subject, training)
    if job.schedule is not None:
        traces["schedule"] = trace_schedule(job.schedule)
    if optimizer.use_ema:
        traces["finalize"] = trace_finalize(model, optimizer)
    if _needs_losses(model, training.objectives):
        traces["loss"] = trace_losses(subject, training)
    check_captures(traces)
    return traces, padding_counts


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


def _program(job: Job, traces: Mapping[str, Trace]) -> Program:
    """Gather the variables that the signatures read and write."""
    model, optimizer = job.subject.model, job.training.optimizer
    weights, generators = weights_of(model), random_states_of(model)
    counts = [v for v in model.weights if all(v is not weight for weight in weights)]
    generators = [*generators, *untracked_states(traces, {handle(v) for v in generators})]
    return Program(
        traces=traces,
        weights=weights,
        states=[*(v for v in optimizer.variables if v is not optimizer.learning_rate), *counts, *generators],
        generators=generators,
        offsets=list(job.training.offsets.values()),
        inputs={"learning_rate": optimizer.learning_rate},
    )


def _emitted(job: Job, program: Program) -> tuple[Signatures, bytes]:
    """Emit the signatures with the ops of the flavour, and convert them."""
    model = job.subject.model
    if job.settings.flex:
        checkpoint = checkpoint_of(model, job.training.optimizer, program.generators)
        signatures = flex_signatures(program, checkpoint)
        return signatures, convert(signatures, flex=True)
    signatures = emit_signatures(program)
    content = convert(signatures)
    return signatures, with_int8_constants(content) if quantized(model) else content


def _reference(job: Job, program: Program, signatures: Signatures) -> KerasSide:
    """Return the model or the PyTorch module that the file is compared with."""
    subject, source = job.subject, job.settings.source
    named = program.variables_by_name(signatures.slots)
    if not is_module(source):
        return KerasSide(subject.model, subject.interface, job.training, named)
    draws = bool(signatures.random_states)
    return TorchSide(subject.model, subject.interface, job.training, named, source, job.example.inputs, draws)


def _described(job: Job, program: Program, signatures: Signatures, content: bytes) -> bytes:
    """Return the file with its manifest, and with a second `infer` for deployment."""
    settings, model, interface = job.settings, job.subject.model, job.subject.interface
    first, names = job.training.objectives[0], interface.input_names
    # A step with constraints does more than the optimizer's rule.
    constraints = {"constraints": True} if any(v.constraint is not None for v in model.trainable_weights) else {}
    manifest = Manifest(
        name=settings.name or model.name,
        parameters=parameters_of(model, job.subject.groups),
        loss=first.name,
        from_logits=first.from_logits,
        optimizer={**settings_of(job.training.optimizer, job.schedule), **constraints},
        batch_size=DEFAULT_BATCH_SIZE if settings.batch_size is None else settings.batch_size,
        random_states=signatures.random_states,
        delta=first.delta,
        inputs=names if len(names) > 1 else ("x",),
        outputs=outputs_of(job.training.objectives, interface, settings.task, settings.metrics),
        train_inputs=job.training.terms.declared,
        checked=settings.check or settings.flex,
    )
    inference = None if settings.flex or quantized(model) else native_inference(program)
    content = with_metadata(content, INFERENCE, inference) if inference else content
    return with_metadata(content, METADATA_NAME, manifest.to_json().encode())
