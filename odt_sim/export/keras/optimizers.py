"""Optimizers and learning-rate schedules, from the caller's settings."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from odt_sim._support.checks import Range
from odt_sim.errors import ExportError, ExportWarning

Schedule = Any
"""A `keras.optimizers.schedules.LearningRateSchedule`."""

EXCLUSIONS = ("_exclude_from_weight_decay", "_exclude_from_weight_decay_pattern")  # not part of an optimizer's config
EXCLUDED = "exclude_from_weight_decay"

RANGES = {
    **dict.fromkeys(("clipnorm", "clipvalue", "global_clipnorm", "weight_decay"), Range(least=0)),
    **dict.fromkeys(("learning_rate", "momentum", "epsilon"), Range(least=0)),
    **dict.fromkeys(("beta_1", "beta_2", "rho"), Range(least=0, below=1)),
}
"""The ranges of settings that Keras does not check, by name."""


def optimizer_of(given: Any, *, scales_loss: bool = False) -> keras.optimizers.Optimizer:
    """Return a new Keras optimizer whose learning rate is a number: the first rate if a schedule is given.

    Args:
        given: A Keras optimizer; its name; or a mapping with `name` and settings, see `from_settings`.
        scales_loss: Whether to keep a `LossScaleOptimizer`; otherwise, its inner optimizer replaces it.
    """
    if not isinstance(given, str | Mapping | keras.optimizers.Optimizer):
        raise ExportError(
            f"optimizer: expected a Keras optimizer, its name, or a mapping of name and settings, found {_kind(given)}; "
            'give, for example, {"name": "SGD", "learning_rate": 0.1}'
        )
    given = given if scales_loss else _without_loss_scaling(given)
    schedule = schedule_of(given)
    rate = {} if schedule is None else {"learning_rate": first_rate(schedule)}
    try:
        new = from_settings({**given, **rate}) if isinstance(given, Mapping) else _rebuilt(given, rate)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        line = str(error).strip().partition("\n")[0]
        raise ExportError(f"optimizer {given!r}: not a Keras optimizer with these settings ({line})") from error
    if isinstance(new, keras.optimizers.MultiOptimizer):
        raise ExportError(f"optimizer {new.name}: has no single learning rate; use one optimizer for all weights")
    _check_ranges(new)
    return new


def _check_ranges(optimizer: keras.optimizers.Optimizer) -> None:
    """Check settings that Keras does not check: it ignores negative clipping, and other wrong settings lead to NaN.

    Users' classes are not checked, because a name may have another meaning there.

    Raises:
        ExportError: A setting is out of its range.
    """
    if not type(optimizer).__module__.startswith("keras."):
        return
    for name, bounds in RANGES.items():
        value = getattr(optimizer, name, None)
        value = float(np.asarray(value)) if isinstance(value, keras.Variable) else value
        if isinstance(value, int | float) and not bounds.holds(value):
            raise ExportError(
                f"optimizer {type(optimizer).__name__}: {name}: expected a number {bounds}, found {value}; correct it, or "
                "leave it out"
            )


def is_linear(optimizer: keras.optimizers.Optimizer) -> bool:
    """Return whether a step by a sum of gradients is the sum of the steps by each: true of SGD without clipping."""
    clips = any(getattr(optimizer, name) is not None for name in ("clipnorm", "clipvalue", "global_clipnorm"))
    return type(optimizer) is keras.optimizers.SGD and not clips


def _kind(given: Any) -> str:
    kind = given if isinstance(given, type) else type(given)
    return f"{'the class' if isinstance(given, type) else 'an object of'} {kind.__module__}.{kind.__qualname__}"


def _rebuilt(given: Any, rate: Mapping[str, float]) -> keras.optimizers.Optimizer:
    if isinstance(given, str):
        return from_settings({"name": given})
    new = type(given).from_config({**_config_of_optimizer(given, rate), **rate})
    for name in EXCLUSIONS:
        if hasattr(given, name):
            setattr(new, name, getattr(given, name))
    return new


def _config_of_optimizer(given: Any, rate: Mapping[str, float]) -> dict[str, Any]:
    """Return an optimizer's config without its schedule, because a schedule may have no config."""
    if not rate:
        return dict(given.get_config())
    schedule, given._learning_rate = given._learning_rate, tf.constant(0.0)
    try:
        return dict(given.get_config())
    finally:
        given._learning_rate = schedule


def from_settings(given: Mapping[str, Any]) -> keras.optimizers.Optimizer:
    """Return the optimizer that a mapping describes.

    Args:
        given: `name`, the name of a Keras class or the path of any class, such as `my_package.MyOptimizer`; the class's
            settings; and `exclude_from_weight_decay`, a list of substrings of weights' names.
    """
    settings = dict(given)
    name, excluded = settings.pop("name"), settings.pop(EXCLUDED, None)
    new = _made(name, settings)
    if excluded:
        new.exclude_from_weight_decay(var_names=list(excluded))
    return new


def _made(name: str, settings: dict[str, Any]) -> Any:
    """Return an optimizer; refuse `decay`, which Keras 3 ignores with a warning that the subprocess would hide."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Argument `decay`")
        try:
            if "." in name:
                return class_at(name, keras.optimizers.Optimizer)(**settings)
            if name.lower() == "lamb":  # missing from Keras' lookup
                return keras.optimizers.Lamb(**settings)
            return keras.optimizers.get({"class_name": name, "config": settings})
        except UserWarning as error:
            raise ExportError(
                f"optimizer {name}: decay has no effect in Keras 3; give learning_rate a schedule, such as "
                "{name: InverseTimeDecay}, or set weight_decay"
            ) from error


def schedule_of(given: Any) -> Schedule | None:
    """Return the learning-rate schedule of an optimizer given as to `optimizer_of`; None for a fixed rate."""
    given = _without_loss_scaling(given, quiet=True)
    rate = given.get("learning_rate") if isinstance(given, Mapping) else getattr(given, "_learning_rate", None)
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        return rate
    if callable(rate) and not isinstance(rate, keras.Variable):
        raise ExportError(
            f"optimizer: expected a number or a keras.optimizers.schedules.LearningRateSchedule as its learning rate, "
            f"found {type(rate).__name__}; subclass it"
        )
    if not isinstance(rate, Mapping):
        return None
    settings, schedules = dict(rate), keras.optimizers.schedules
    base, name = schedules.LearningRateSchedule, str(settings.pop("name", None) or "")
    known = [known for known in dir(schedules) if known[0].isupper() and known != base.__name__]
    if "." not in name and name not in known:
        raise ExportError(
            f"learning_rate.name: expected {', '.join(known)}, or the path of your own class, found {name or 'none'}"
        )
    kind = class_at(name, base) if "." in name else getattr(schedules, name)
    try:
        return kind(**settings)
    except (TypeError, ValueError) as error:
        raise ExportError(f"learning_rate: {name} does not accept these settings ({error}); correct them") from error


def first_rate(schedule: Schedule) -> float:
    """Return the learning rate of a schedule's first step."""
    return float(np.asarray(schedule(tf.constant(0, tf.int64))))


def class_at(path: str, base: type) -> Any:
    """Return the class at a path such as `my_package.MyOptimizer`, a subclass of `base`."""
    module, _, name = path.rpartition(".")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ExportError(f"{path}: cannot be imported ({error}); give the path of a class") from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ExportError(
            f"{path}: expected a subclass of keras' {base.__name__}, found {found!r}; give the path of one"
        )
    return found


def _without_loss_scaling(given: Any, *, quiet: bool = False) -> Any:
    """Return the inner optimizer of a `LossScaleOptimizer`, because float32 steps need no scale, or the given one."""
    if isinstance(given, Mapping) and str(given.get("name")) == "LossScaleOptimizer":
        inner = given.get("inner_optimizer", {"name": "missing inner_optimizer"})
    elif isinstance(given, keras.optimizers.LossScaleOptimizer):
        inner = given.inner_optimizer
    else:
        return given
    if not quiet:
        warnings.warn(
            "optimizer: LossScaleOptimizer is exported as its inner optimizer, since steps compute in float32; steps with "
            "infinite gradients are not skipped",
            ExportWarning,
            stacklevel=5,
        )
    return inner


def settings_of(optimizer: keras.optimizers.Optimizer, schedule: Schedule | None = None) -> dict[str, Any]:
    """Return an optimizer's name and settings, including `learning_rate`, for JSON; floats as written, such as 0.1.

    With a schedule, `learning_rate` is the first rate, and `schedule` contains the schedule's class and settings.
    """
    config = {key: _plain(value) for key, value in optimizer.get_config().items()}
    described = {} if schedule is None else {"schedule": {"name": type(schedule).__name__, **_config_of(schedule)}}
    pattern = getattr(optimizer, "_exclude_from_weight_decay_pattern", None)
    excluded = {} if pattern is None else {EXCLUDED: sorted(pattern.pattern.split("|"))}
    return config | excluded | described | {"name": type(optimizer).__name__}


def _config_of(schedule: Schedule) -> dict[str, Any]:
    """Return the numbers and strings of a schedule's config; a user's schedule may have no config."""
    try:
        config = schedule.get_config()
    except NotImplementedError:
        return {}
    plain = (bool, int, float, str, list, tuple)
    return {key: _plain(value) for key, value in config.items() if key != "name" and isinstance(value, plain)}


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return float(str(np.float32(value))) if isinstance(value, float | np.floating) else value


Array = NDArray[Any]


def check_initial_slots(
    optimizer: keras.optimizers.Optimizer,
    weights: Sequence[keras.Variable],
    again: Callable[[], keras.optimizers.Optimizer],
) -> None:
    """Check that no slot is derived from the weights, as the averages of ScheduleFreeAdamW and Lookahead are.

    Args:
        optimizer: An optimizer that was built for the weights.
        weights: The trainable weights.
        again: Returns the same optimizer, not yet built.
    """
    if all(map(_is_constant, optimizer.variables)) and not all(map(_is_constant, weights)):
        return
    slots, of_others, of_same = optimizer.variables, _slots_of_others(again, weights), _built(again, weights)
    for slot, other, same in zip(slots, of_others, of_same, strict=True):
        value = np.asarray(slot)
        if np.array_equal(value, same) and not np.array_equal(value, other):  # else it is random
            raise ExportError(
                f"optimizer {type(optimizer).__name__}: its slot {slot.path!r} starts as a function of the weights, "
                "but a device restores other weights next to the slots of the export; use another optimizer, such as "
                "AdamW, or set the slot of your own optimizer in its first step, where `iterations` is 0"
            )


def _is_constant(variable: keras.Variable) -> bool:
    value = np.asarray(variable)
    return value.size == 0 or bool(value.min() == value.max())


def _built(again: Callable[[], keras.optimizers.Optimizer], weights: Sequence[keras.Variable]) -> list[Array]:
    with warnings.catch_warnings(action="ignore"):  # already issued for the first one
        optimizer = again()
    optimizer.build(weights)
    return [np.asarray(slot) for slot in optimizer.variables]


def _slots_of_others(again: Callable[[], keras.optimizers.Optimizer], weights: Sequence[keras.Variable]) -> list[Array]:
    """Return the slots for other values of the same weights; an optimizer may choose its slots by the weights' names."""
    before = [np.asarray(weight) for weight in weights]
    try:
        for weight, value in zip(weights, before, strict=True):
            weight.assign(value + 1.0)
        return _built(again, weights)
    finally:
        for weight, value in zip(weights, before, strict=True):
            weight.assign(value)
