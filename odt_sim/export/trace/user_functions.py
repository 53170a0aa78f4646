"""Trace the signature functions of a user's model class or `tf.Module`, which may use Keras 2 names that Keras 3 lacks."""

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import keras
import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.keras.interface import identifier, interface_of
from odt_sim.export.trace.tracing import Function, concrete, unrolled
from odt_sim.model.contract.names import ROW_INPUTS, full, is_one_of
from odt_sim.model.contract.signatures import REQUIRED, TRAIN_INPUTS


def _minimize(
    optimizer: keras.optimizers.Optimizer,
    loss: tf.Tensor | Callable[[], tf.Tensor],
    var_list: Sequence[Any] | Callable[[], Sequence[Any]],
    tape: tf.GradientTape | None = None,
) -> None:
    """Apply the gradients of a loss, which is a tensor or a function."""
    tape = tape or tf.GradientTape()
    if callable(loss):
        with tape:
            loss = loss()
    variables = var_list() if callable(var_list) else var_list
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))


_NAMES: tuple[tuple[type, str, Any], ...] = (
    (keras.Variable, "read_value", lambda variable: variable.value.read_value()),
    (keras.optimizers.Optimizer, "minimize", _minimize),
    (keras.optimizers.Optimizer, "lr", property(lambda optimizer: optimizer.learning_rate)),
    (keras.metrics.Metric, "reset_states", lambda metric: metric.reset_state()),
)


def add_keras2_names() -> None:
    """Add missing Keras 2 names to Keras' classes.

    These are `weight.read_value()`, `optimizer.minimize(loss, var_list, tape)`, `optimizer.lr` and `metric.reset_states()`.
    """
    for owner, name, value in _NAMES:
        if not hasattr(owner, name):
            setattr(owner, name, value)


@contextmanager
def deprecations_ignored() -> Iterator[None]:
    """Silence Keras' deprecation warnings for the Keras 2 names that it still supports."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`model\.compiled_(loss|metrics)\(\)` is deprecated")
        yield


INITIALIZE = "initialize"
GIVE_SHAPES = "decorate it with tf.function and an input_signature"

Specs = Sequence[tf.TensorSpec | Mapping[str, tf.TensorSpec]]
"""The arguments of a function, in order; several inputs or targets by name are one argument."""


def keras_models(module: tf.Module) -> list[keras.Model]:
    """Return the Keras models among a module's attributes."""
    return [value for value in vars(module).values() if isinstance(value, keras.Model)]


def as_function(cls: type, name: str) -> Any:
    """Return a method of a model class as a `tf.function` over the shapes of the class.

    Metrics are reset before a step with targets: the loss of Keras' `train_step` is the mean since the last reset, so it
    becomes the loss of the batch.
    """
    method = inspect.getattr_static(cls, name)
    if _is_function(method):
        return method
    specs = None if name == "restore" else specs_of(cls, name)
    own = tf.function(method)

    @wraps(method)
    def prepared(self: tf.Module, *arguments: tf.Tensor, **named: tf.Tensor) -> Any:
        return _run(self, _flat(specs or ()), lambda: own(self, *arguments, **named))

    return tf.function(prepared, input_signature=specs, autograph=False)


def specs_of(cls: Any, name: str) -> Specs:
    """Return the arguments of a method, with the shapes of its class: the first is `x`, the second `y`."""
    own = _arguments(getattr(cls, name))
    names = [*TRAIN_INPUTS[: min(2, len(own))], *own[2:]]
    unknown = [argument for argument in names if argument not in TRAIN_INPUTS]
    if unknown:
        raise ExportError(
            f"{cls.__name__}.{name}: unknown shape of argument {unknown[0]!r}; "
            f"expected {', '.join(TRAIN_INPUTS)}, or {GIVE_SHAPES}"
        )
    return [_spec(cls, argument) for argument in names]


def _spec(cls: Any, argument: str) -> tf.TensorSpec | dict[str, tf.TensorSpec]:
    if argument not in ROW_INPUTS:
        return tf.TensorSpec([cls.BATCH_SIZE] if argument == "sample_weight" else [], name=argument)
    setting = f"{argument.upper()}_SHAPE"
    shape = getattr(cls, setting, None)
    shapes: Mapping[str, Any] = shape if isinstance(shape, Mapping) else {"": shape}
    for own in shapes.values():
        if not isinstance(own, Sequence) or not all(size is None or isinstance(size, int) for size in own):
            raise ExportError(
                f"{cls.__name__}.{setting}: expected the shape of an example, or a mapping of shapes by the names of "
                f"several, found {shape!r}; give such a shape, or the methods a tf.function with an input_signature"
            )
    names = {name: full(argument, identifier(name) if len(shapes) > 1 else "") for name in shapes}
    specs = {name: tf.TensorSpec([cls.BATCH_SIZE, *own], name=names[name]) for name, own in shapes.items()}
    return specs if isinstance(shape, Mapping) else specs[""]


def check_shapes(cls: Any, model: keras.Model) -> None:
    """Check that a class gives a shape for each input and output of its Keras model.

    Raises:
        ExportError: A shape is missing.
    """
    if not getattr(model, "inputs", None):
        return
    interface = interface_of(model)
    for setting, names in (("X_SHAPE", interface.input_names), ("Y_SHAPE", interface.output_names)):
        shape = getattr(cls, setting)
        found = {identifier(name) for name in shape} if isinstance(shape, Mapping) else {""}
        if len(names) > 1 and found != set(names):
            raise ExportError(
                f"{setting}: expected a mapping with a shape for each of {', '.join(names)}, found {shape!r}; give "
                "one, or export the Keras model itself by export_model"
            )


def named_outputs(model: keras.Model, outputs: Any) -> dict[str, tf.Tensor]:
    """Return the outputs of a call as `logits`, or each of several as `logits_<name>`."""
    flat = keras.tree.flatten(outputs)
    names = interface_of(model).output_names if len(flat) > 1 else ("",)
    return {full("logits", name): value for name, value in zip(names, flat, strict=True)}


def trace_functions(model: tf.Module) -> dict[str, Function]:
    """Trace the signatures of a user's model object.

    Returns:
        The graph of each signature, with named outputs.
    """
    missing = [name for name in REQUIRED if not callable(getattr(type(model), name, None))]
    if missing:
        raise ExportError(f"{type(model).__name__}: no method {missing[0]!r}; expected {', '.join(REQUIRED)}")
    functions: dict[str, Function] = {}
    for name in [*REQUIRED, *_further(type(model))]:
        function = _trace(model, name, functions)
        if isinstance(function.structured_outputs, dict):
            functions[name] = function
        elif name in REQUIRED:
            raise ExportError(f"{_where(model, name)}: expected to return a dictionary of tensors; give each a name")
    return functions


def _further(cls: type) -> Iterator[str]:
    for name in dir(cls):
        if name.startswith("_") or name in REQUIRED or hasattr(tf.Module, name):
            continue
        method = inspect.getattr_static(cls, name)
        if _is_function(method):
            if method.input_signature is not None:
                yield name
        elif inspect.isfunction(method) and hasattr(cls, "X_SHAPE"):
            own = _arguments(method)
            if name == INITIALIZE or own in (["x"], ["x", "y"]):
                yield name


def _trace(model: tf.Module, name: str, before: dict[str, Function]) -> Function:
    arguments, own = _specs(model, name, before), _fresh(model, name)
    specs = _flat(arguments)

    def run(*values: tf.Tensor) -> Any:
        named = {spec.name: value for spec, value in zip(specs, values, strict=True)} if name == "restore" else {}
        result = _run(model, specs, lambda: own(**named) if named else own(*_nested(arguments, values)))
        return {"done": tf.constant(1)} if result is None else result

    metrics = _metrics_variables(model)
    try:
        function = concrete(run, specs)
        # The first trace could not reset metrics that it created.
        return function if _metrics_variables(model) == metrics else concrete(run, specs)
    except Exception as error:  # user code may raise anything
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        line = lines[-1].removeprefix("ExportError: ") if lines[0] == "in user code:" else lines[0]
        raise ExportError(f"{_where(model, name)} cannot be traced: {line}") from error


def _fresh(model: tf.Module, name: str) -> Callable[..., Any]:
    """Return a method as a new function, because earlier traces may contain recurrent layers as loops."""
    method = inspect.getattr_static(type(model), name)
    function = method.python_function if _is_function(method) else method
    if hasattr(function, "__wrapped__"):  # see `as_function`
        return lambda *values, **named: function(model, *values, **named)
    own = tf.function(function)
    return lambda *values, **named: own(model, *values, **named)


def _flat(arguments: Specs) -> list[tf.TensorSpec]:
    """Return the tensors of arguments, in order."""
    return [spec for own in arguments for spec in (own.values() if isinstance(own, Mapping) else [own])]


def _nested(arguments: Specs, values: Sequence[tf.Tensor]) -> list[Any]:
    """Return the values of `_flat` tensors as the arguments."""
    left = iter(values)
    return [{name: next(left) for name in own} if isinstance(own, Mapping) else next(left) for own in arguments]


def _specs(model: tf.Module, name: str, before: dict[str, Function]) -> Specs:
    method = inspect.getattr_static(type(model), name)
    own = _is_function(method) and method.input_signature is not None
    if name == "restore" and not own:
        outputs = before["parameters"].structured_outputs
        return [tf.TensorSpec(outputs[key].shape, outputs[key].dtype, key) for key in outputs]
    if not own and (hasattr(model, "X_SHAPE") or name == "parameters"):
        return specs_of(type(model), name)
    if not own:
        raise ExportError(f"{_where(model, name)}: unknown shapes of its arguments; {GIVE_SHAPES}")
    named = zip(method.input_signature, _arguments(method.python_function), strict=False)
    return [_named(spec, argument) for spec, argument in named]


def _named(spec: Any, argument: str) -> tf.TensorSpec | dict[str, tf.TensorSpec]:
    """Return the spec of an argument, with names for its tensors."""
    if isinstance(spec, Mapping):
        names = {name: full(argument, identifier(name)) for name in spec}
        return {name: tf.TensorSpec(own.shape, own.dtype, own.name or names[name]) for name, own in spec.items()}
    return tf.TensorSpec(spec.shape, spec.dtype, spec.name or argument)


def _run(model: tf.Module, specs: Sequence[tf.TensorSpec], function: Callable[[], Any]) -> Any:
    """Run a user's function; with targets, its metrics cover only this call."""
    models = keras_models(model)
    alone = any(is_one_of(spec.name, ("y",)) for spec in specs)
    with ExitStack() as contexts:
        for keras_model in models:
            contexts.enter_context(unrolled(keras_model))
        contexts.enter_context(deprecations_ignored())
        contexts.enter_context(_fresh_metrics(models if alone else []))
        result = function()
    if isinstance(result, dict):
        return {name: tf.convert_to_tensor(value) for name, value in result.items()}
    return result


@contextmanager
def _fresh_metrics(models: Sequence[keras.Model]) -> Iterator[None]:
    """Reset the metrics of models, including those that the first call creates."""
    for model in models:
        model.reset_metrics()
    known = [len(model.metrics_variables) for model in models]
    yield
    for model, count in zip(models, known, strict=True):
        if len(model.metrics_variables) > count:
            model.reset_metrics()


def _metrics_variables(model: tf.Module) -> int:
    return sum(len(keras_model.metrics_variables) for keras_model in keras_models(model))


def _arguments(method: Any) -> list[str]:
    return list(inspect.signature(method).parameters)[1:]


def _is_function(method: Any) -> bool:
    return isinstance(method, tf.types.experimental.PolymorphicFunction)


def _where(model: tf.Module, name: str) -> str:
    return f"{type(model).__name__}.{name}"
