"""Exports an unchanged Keras model as a trainable `.tflite` file."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from odt_sim.errors import ExportError
from odt_sim.export.check import check_model
from odt_sim.export.convert import convert
from odt_sim.export.objective import objective_of, optimizer_of, settings_of
from odt_sim.export.parameters import parameters_of
from odt_sim.export.signatures import emit_signatures, last_op, trace_infer, trace_train
from odt_sim.files import write_file
from odt_sim.model.flatbuffer import fingerprint, with_metadata
from odt_sim.model.manifest import METADATA_NAME, Manifest


def export_model(
    model: keras.Model,
    path: str | os.PathLike[str],
    *,
    loss: Any,
    optimizer: Any,
    batch_size: int = 32,
    name: str | None = None,
    head: str | Sequence[str] | None = None,
) -> Path:
    """Exports a Keras model with its current weights as a `.tflite` file that trains on any LiteRT interpreter.

    The training step is traced as Keras runs it and emitted again with TFLite's built-in ops. The model and the optimizer
    are left as they are.

    Args:
        model: A built Keras 3 Sequential or Functional model with one input and one output.
        path: Where to write the file.
        loss: One of `odt_sim.model.manifest.LOSSES` by name, or a Keras loss object of these. By name, a cross-entropy takes
            the model's output as logits unless it ends in a softmax (for the binary one: a sigmoid).
        optimizer: A Keras optimizer object or its name. Its learning rate is only the default in the manifest: the rate is
            an input of `train`.
        batch_size: Rows of one call of `train` and of `infer`.
        name: The model's name in the manifest; None takes Keras' name.
        head: The layer, or layers, that form the head; None takes the last layer with weights that is no normalization.

    Returns:
        The path of the file.

    Raises:
        ExportError: The model, the loss or the optimizer cannot be exported, or the file cannot be written.
    """
    check_model(model, batch_size)
    optimizer = optimizer_of(optimizer)
    optimizer.build(model.trainable_variables)
    parameters = parameters_of(model, head)
    infer = trace_infer(model, batch_size)
    objective = objective_of(loss, last_op(infer))
    train = trace_train(model, objective, optimizer, infer.concrete.structured_outputs["logits"].shape)
    signatures = emit_signatures(infer, train, model, optimizer)
    content = convert(signatures)
    manifest = Manifest(
        name=name or model.name,
        parameters=parameters,
        loss=objective.name,
        from_logits=objective.from_logits,
        optimizer=settings_of(optimizer),
        batch_size=batch_size,
        fingerprint=fingerprint(content),
        random_states=signatures.random_states,
    )
    return _write(Path(path), with_metadata(content, METADATA_NAME, manifest.to_json().encode()))


def _write(path: Path, content: bytes) -> Path:
    try:
        write_file(path, content)
    except OSError as error:
        raise ExportError(
            f"{path}: cannot write the model ({error.strerror}); give a path that can be written"
        ) from error
    return path
