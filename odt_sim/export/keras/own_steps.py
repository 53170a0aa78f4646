"""Training steps of models whose class overrides `compute_loss` or `train_step`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.keras.interface import Interface, reason
from odt_sim.export.lowering import Trace

OWN_WAY = "write the training as a tf.Module with its own function train (docs/export.md)"


def own_method(model: keras.Model) -> str | None:
    """Return the method that the class of a model overrides, `train_step` before `compute_loss`; None for neither."""
    own = (
        name for name in ("train_step", "compute_loss") if getattr(type(model), name) is not getattr(keras.Model, name)
    )
    return next(own, None)


def overrides_loss(model: keras.Model) -> bool:
    """Return whether the class of a model overrides `compute_loss`."""
    return type(model).compute_loss is not keras.Model.compute_loss


def added_losses(layer: keras.layers.Layer) -> list[tf.Tensor]:
    """Return the losses that a layer passed to `add_loss` in the latest trace.

    Without that of an activity regularizer, which ignores padding: Keras divides it by the rows, and adds it in the same way.
    """
    regularized = getattr(layer, "activity_regularizer", None) is not None
    return [loss for loss in layer._losses if not (regularized and loss.op.type == "DivNoNan")]


def optimizer_names(model: keras.Model) -> list[str]:
    """Return the names of the attributes that contain a model's only optimizer, including `optimizer`.

    Raises:
        ExportError: The model's `train_step` has several optimizers.
    """
    found = {name: value for name, value in vars(model).items() if isinstance(value, keras.optimizers.Optimizer)}
    others = {name: value for name, value in found.items() if name != "optimizer"}
    used = others or found
    if own_method(model) == "train_step" and len({id(value) for value in used.values()}) > 1:
        raise ExportError(
            f"model {model.name!r}: trains with {len(used)} optimizers ({', '.join(sorted(used))}), but a file has "
            f"one; export only the network that devices train, or {OWN_WAY}"
        )
    return sorted({"optimizer", *used})


class OwnLoss:
    """A replacement for the compiled loss, without metrics."""

    metrics: Sequence[Any] = ()
    variables: Sequence[Any] = ()

    def __init__(self, function: Callable[..., tf.Tensor | None]) -> None:
        self.function = function

    def __call__(self, y: Any, y_pred: Any, sample_weight: Any = None) -> tf.Tensor | None:
        """Return the loss of a batch; None if only layers add one."""
        return self.function(y, y_pred, sample_weight)


@contextmanager
def compiled_as(model: keras.Model, optimizer: Any, loss: Callable[..., tf.Tensor | None]) -> Iterator[None]:
    """Set a model's optimizer and loss `(y, y_pred, sample_weight)` while its methods are traced."""
    new = dict.fromkeys(optimizer_names(model), optimizer)
    new |= {"_compile_loss": OwnLoss(loss), "_compile_metrics": None, "compiled": True}
    new["_loss_tracker"] = keras.metrics.Mean(name="loss")
    before = {name: getattr(model, name) for name in new if hasattr(model, name)}
    for name, value in new.items():
        object.__setattr__(model, name, value)
    try:
        yield
    finally:
        for name in new:
            if name in before:
                object.__setattr__(model, name, before[name])
            else:
                object.__delattr__(model, name)


@contextmanager
def gradients_by(optimizer: Any, change: Callable[[list[Any], list[Any]], list[Any]]) -> Iterator[None]:
    """Change the gradients that an optimizer applies while a step is traced."""
    own = optimizer.apply

    def apply(gradients: Sequence[Any], variables: Sequence[Any] | None = None) -> Any:
        trained = list(optimizer._trainable_variables if variables is None else variables)
        pairs = [(g, v) for g, v in zip(gradients, trained, strict=True) if g is not None]
        return own(change([g for g, _ in pairs], [v for _, v in pairs]), [v for _, v in pairs])

    optimizer.apply = apply
    try:
        yield
    finally:
        del optimizer.apply


def step_loss(model: keras.Model, x: Any, y: Any, sample_weight: tf.Tensor) -> tf.Tensor:
    """Run the model's `train_step` and return the loss of this batch; `y` is None if `fit` takes x alone."""
    where = f"{type(model).__name__}.train_step"
    logs = _logs(model, [(x, y, sample_weight), *([] if y is None else [(x, y)]), x], where)
    if not isinstance(logs, Mapping) or "loss" not in logs:
        found = ", ".join(logs) if isinstance(logs, Mapping) else repr(logs)
        raise ExportError(f"{where}: expected to return the batch's 'loss', found {found}; add it to the dictionary")
    return tf.reduce_mean(tf.cast(tf.convert_to_tensor(logs["loss"]), tf.float32))


def _logs(model: keras.Model, forms: Sequence[Any], where: str) -> Any:
    """Return the result of a model's `train_step` for the first form of its data that it takes."""
    errors: list[Exception] = []
    for data in forms:
        model.reset_metrics()
        try:
            return model.train_step(data)
        except ExportError:
            raise
        except Exception as problem:  # user code may raise anything
            errors.append(problem)
    alone = forms[0][1] is None
    first = next((own for own in errors if "too many values to unpack" not in str(own)), errors[0])
    advice = "; if it takes y, pass a batch as example=(x, y)" if alone else ""
    error = errors[-1] if alone else first
    raise ExportError(f"{where} cannot be traced: {reason(error, [forms[0][-1]])}{advice}") from error


def summed(values: tf.Tensor, sample_weight: tf.Tensor) -> tf.Tensor:
    """Return the sum of a loss's values; a padded batch, in which real rows count as the padding, too, is scaled back."""
    total = tf.reduce_sum(values)
    rows = sample_weight.shape[0]
    padded = rows is not None and values.shape[:1].as_list() == [rows]
    return total * tf.reduce_mean(tf.cast(tf.not_equal(sample_weight, 0.0), tf.float32)) if padded else total


def with_added(loss: tf.Tensor | None, added: Sequence[tf.Tensor], sample_weight: tf.Tensor) -> tf.Tensor:
    """Return the loss of a batch plus those of `add_loss` and of regularizers; those of padding rows do not count.

    Args:
        loss: The loss; None if only layers add one.
        added: The losses that are added: one number, or a value for each example.
        sample_weight: The weights of the examples, 0 for padding.
    """
    real = tf.cast(tf.not_equal(sample_weight, 0.0), tf.float32)
    rows = sample_weight.shape[0]
    each = [tf.reshape(real, [-1] + [1] * (len(own.shape) - 1)) for own in added]
    sums = [
        own if not own.shape.rank else tf.reduce_sum(own * mask if own.shape[0] == rows is not None else own)
        for own, mask in zip(added, each, strict=True)
    ]
    terms = [*([] if loss is None else [loss]), *sums]
    return tf.add_n(terms) if len(terms) > 1 else terms[0]


def batch_losses(
    model: keras.Model, interface: Interface, x: Sequence[Any], y: Sequence[Any] | None, outputs: Sequence[Any]
) -> tf.Tensor:
    """Return the model's `compute_loss` of a batch for each of its examples, `[batch]`, without regularization."""
    value = model._compute_loss(
        x=interface.arguments(x),
        y=None if y is None else interface.returned(y),
        y_pred=interface.returned(outputs),
        sample_weight=tf.ones(tf.shape(outputs[0])[:1]),
        training=False,
    )
    added = sum(tf.reshape(own, []) for own in model.losses)
    return tf.broadcast_to(tf.reduce_mean(value) - added, tf.shape(outputs[0])[:1])


def example_losses(
    model: keras.Model, interface: Interface, x: Sequence[Any], y: Sequence[Any] | None, outputs: Sequence[Any]
) -> tf.Tensor:
    """Return the model's `compute_loss` for each example separately, `[batch]`, without regularization."""

    def loss(row: tuple[Sequence[tf.Tensor], ...]) -> tf.Tensor:
        features, predicted, targets = ([tensor[tf.newaxis] for tensor in tensors] for tensors in row)
        value = model._compute_loss(
            x=interface.arguments(features),
            y=None if y is None else interface.returned(targets),
            y_pred=interface.returned(predicted),
            sample_weight=tf.ones([1]),
            training=False,
        )
        return tf.reduce_mean(value) - sum(tf.reshape(own, []) for own in model.losses)

    return tf.vectorized_map(loss, (list(x), list(outputs), list(y or ())), fallback_to_while_loop=False)


def check_weighted(trace: Trace, model: keras.Model, weights: Sequence[int], batch_size: int | None) -> None:
    """Check that a step uses the sample weights; otherwise, the rows that pad a partial batch would count."""
    if batch_size is None or any(WEIGHT in op.name for op in trace.live_operations(weights)):
        return
    data = "x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)"
    method, how = ("compute_loss", "its argument") if own_method(model) == "compute_loss" else ("train_step", data)
    raise ExportError(
        f"{type(model).__name__}.{method}: does not use sample_weight, so rows that pad a partial batch would count; "
        f"use it ({how}), or export with batch_size=None"
    )


WEIGHT = "weight_of_examples"
"""The name of the op that passes the sample weights to a model's own step."""
