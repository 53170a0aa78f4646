"""Training steps of models whose class overrides `compute_loss` or `train_step`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.interface import Interface, one_line
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

    def __init__(self, function: Callable[..., tf.Tensor]) -> None:
        self.function = function

    def __call__(self, y: Any, y_pred: Any, sample_weight: Any = None) -> tf.Tensor:
        """Return the loss of a batch."""
        return self.function(y, y_pred, sample_weight)


@contextmanager
def compiled_as(model: keras.Model, optimizer: Any, loss: Callable[..., tf.Tensor]) -> Iterator[None]:
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
    """Run the model's `train_step` and return the loss of this batch."""
    where = f"{type(model).__name__}.train_step"
    model.reset_metrics()
    try:
        logs = model.train_step((x, y, sample_weight))
    except ValueError as error:
        if "too many values to unpack" not in str(error):
            raise ExportError(f"{where} cannot be traced: {one_line(error)}") from error
        model.reset_metrics()
        logs = _called(model, (x, y), where)
    except ExportError:
        raise
    except Exception as error:  # user code may raise anything
        raise ExportError(f"{where} cannot be traced: {one_line(error)}") from error
    if not isinstance(logs, Mapping) or "loss" not in logs:
        found = ", ".join(logs) if isinstance(logs, Mapping) else repr(logs)
        raise ExportError(f"{where}: expected to return the batch's 'loss', found {found}; add it to the dictionary")
    return tf.reshape(tf.cast(tf.convert_to_tensor(logs["loss"]), tf.float32), [])


def _called(model: keras.Model, data: Any, where: str) -> Any:
    try:
        return model.train_step(data)
    except Exception as error:  # user code may raise anything
        raise ExportError(f"{where} cannot be traced: {one_line(error)}") from error


def example_losses(
    model: keras.Model, interface: Interface, x: Sequence[Any], y: Sequence[Any], outputs: Sequence[Any]
) -> tf.Tensor:
    """Return the model's `compute_loss` for each example separately, `[batch]`, without regularization."""

    def loss(row: tuple[Sequence[tf.Tensor], ...]) -> tf.Tensor:
        features, targets, predicted = ([tensor[tf.newaxis] for tensor in tensors] for tensors in row)
        value = model._compute_loss(
            x=interface.arguments(features),
            y=interface.returned(targets),
            y_pred=interface.returned(predicted),
            sample_weight=tf.ones([1]),
            training=False,
        )
        return tf.reshape(value, []) - sum(tf.reshape(own, []) for own in model.losses)

    return tf.vectorized_map(loss, (list(x), list(y), list(outputs)), fallback_to_while_loop=False)


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
