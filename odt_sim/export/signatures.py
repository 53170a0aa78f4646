"""Traces a Keras model's training step and its answer, and emits them with the other signatures of a trainable model."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import keras
import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.batch_normalization import real_rows_only
from odt_sim.export.lowering import Trace, emit
from odt_sim.export.objective import Objective
from odt_sim.export.parameters import leaf_layers, random_states_of
from odt_sim.export.recurrent import unrolled


@dataclass(frozen=True)
class Signatures:
    """The functions of a trainable model.

    Attributes:
        module: What owns the variables.
        functions: A traced function for each signature.
        random_states: The numbers i of the slots `s<i>` that hold the seed and the count of a random layer.
    """

    module: tf.Module
    functions: dict[str, tf.types.experimental.ConcreteFunction]
    random_states: tuple[int, ...]


def trace_infer(model: keras.Model, batch_size: int) -> Trace:
    """Traces `infer(x) -> logits`."""
    x = _input(model, batch_size)

    def infer(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"logits": model(x, training=False)}

    return _trace(infer, [x], model)


def trace_train(
    model: keras.Model, objective: Objective, optimizer: keras.optimizers.Optimizer, output: tf.TensorShape
) -> Trace:
    """Traces `train(x, y, sample_weight) -> loss`; the learning rate stays the optimizer's variable here.

    Args:
        model: The model.
        objective: What to minimize.
        optimizer: A built optimizer.
        output: The shape of the model's output, `[batch, ...]`.
    """
    arguments = [_input(model, output[0]), objective.target(output), tf.TensorSpec(output[:1], name="sample_weight")]

    def train(x: tf.Tensor, y: tf.Tensor, sample_weight: tf.Tensor) -> dict[str, tf.Tensor]:
        weight = tf.reshape(sample_weight, [-1] + [1] * (len(output) - 2))  # of each position in a row, too
        with tf.GradientTape() as tape, real_rows_only(model, sample_weight):
            outputs = model(x, training=True)
            _check_unmasked(outputs)
            loss = objective.function(y, outputs, sample_weight=weight)
            loss = tf.add_n([loss, *model.losses]) if model.losses else loss
            scaled = optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return {"loss": loss}

    return _trace(train, arguments, model)


def _check_unmasked(outputs: tf.Tensor) -> None:
    if getattr(outputs, "_keras_mask", None) is not None:
        raise ExportError(
            "the model's output carries a mask, by which Keras would weigh a padded batch otherwise than its real rows; "
            "set mask_zero to False, or return_sequences of the last recurrent layer"
        )


def last_op(infer: Trace) -> str:
    """Returns the type of the op that computes the traced model's output."""
    op = infer.concrete.structured_outputs["logits"].op
    while op.type in ("Identity", "Reshape"):
        op = op.inputs[0].op
    return str(op.type)


def emit_signatures(
    infer: Trace, train: Trace, model: keras.Model, optimizer: keras.optimizers.Optimizer
) -> Signatures:
    """Emits every signature over new variables that hold the current values.

    New ones, because only variables that were not made by Keras get an initializer in the file: so a fresh interpreter
    can train at once.

    Raises:
        ExportError: An op cannot be emitted with TFLite's built-in ops.
    """
    weights = {_handle(v): tf.Variable(v.numpy(), name=f"a{i}") for i, v in enumerate(model.weights)}
    infer_operations, train_operations = (trace.live_operations(weights) for trace in (infer, train))
    read = {train.variables[op.name] for op in train_operations if op.name in train.variables}
    generators = random_states_of(model)
    states = [v for v in [*optimizer.variables, *generators] if v is not optimizer.learning_rate and _handle(v) in read]
    slots = {_handle(v): tf.Variable(v.numpy(), name=f"s{i}") for i, v in enumerate(states)}
    x, y, sample_weight = train.concrete.structured_input_signature[0]

    def emit_infer(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return emit(infer, infer_operations, {"x": x}, weights)

    def emit_train(
        x: tf.Tensor, y: tf.Tensor, sample_weight: tf.Tensor, learning_rate: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        inputs = {"x": x, "y": y, "sample_weight": sample_weight}
        return emit(
            train, train_operations, inputs, {**weights, **slots, _handle(optimizer.learning_rate): learning_rate}
        )

    functions = {
        "train": _concrete(emit_train, [x, y, sample_weight, tf.TensorSpec([], name="learning_rate")]),
        "infer": _concrete(emit_infer, [x]),
        "parameters": _reader(list(weights.values()), "a"),
        "restore": _writer(list(weights.values()), "a"),
    }
    if slots:
        functions["optimizer_state"] = _reader(list(slots.values()), "s")
        functions["restore_optimizer_state"] = _writer(list(slots.values()), "s")
    module = tf.Module()
    module.variables_of_model = [*weights.values(), *slots.values()]
    random = {_handle(v) for v in generators}
    return Signatures(module, functions, tuple(i for i, handle in enumerate(slots) if handle in random))


def _input(model: keras.Model, batch_size: int) -> tf.TensorSpec:
    (x,) = model.inputs
    return tf.TensorSpec([batch_size, *x.shape[1:]], x.dtype, name="x")


def _handle(variable: keras.Variable) -> int:
    return id(variable.value.handle)


def _trace(function: Callable[..., dict[str, tf.Tensor]], arguments: list[tf.TensorSpec], model: keras.Model) -> Trace:
    layers: Collection[str] = {layer.name for layer in leaf_layers(model)}
    try:
        with unrolled(model):
            return Trace(_concrete(function, arguments), layers)
    except (ValueError, TypeError, NotImplementedError, tf.errors.OpError) as error:
        line = str(error).strip().partition("\n")[0]
        raise ExportError(f"model {model.name!r}: `{function.__name__}` cannot be traced: {line}") from error


def _concrete(
    function: Callable[..., dict[str, tf.Tensor]], arguments: list[tf.TensorSpec]
) -> tf.types.experimental.ConcreteFunction:
    return tf.function(function, input_signature=arguments, autograph=False).get_concrete_function()


def _reader(variables: list[tf.Variable], prefix: str) -> tf.types.experimental.ConcreteFunction:
    """Returns a function that hands the variables out as `<prefix>0`, `<prefix>1`, ..."""
    return _concrete(lambda: {f"{prefix}{i}": tf.identity(v) for i, v in enumerate(variables)}, [])


def _writer(variables: list[tf.Variable], prefix: str) -> tf.types.experimental.ConcreteFunction:
    """Returns a function that takes the variables back; its output only keeps the converter from removing it."""

    def restore(**values: tf.Tensor) -> dict[str, tf.Tensor]:
        for i, variable in enumerate(variables):
            variable.assign(values[f"{prefix}{i}"])
        return {"count": tf.constant(len(variables))}

    specs = {f"{prefix}{i}": tf.TensorSpec(v.shape, v.dtype, name=f"{prefix}{i}") for i, v in enumerate(variables)}
    return tf.function(restore, autograph=False).get_concrete_function(**specs)
