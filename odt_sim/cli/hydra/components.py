"""Building of the components that a configuration's groups name."""

from collections.abc import Mapping
from typing import Any

import hydra.utils
from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from odt_sim._support.checks import check_value
from odt_sim._support.text import one_line
from odt_sim._support.user_code import imported
from odt_sim.aggregators.base import Aggregator
from odt_sim.attacks.base import Attack
from odt_sim.cli.hydra.keys import unknown_key
from odt_sim.cli.hydra.settings import component, unused_defaults
from odt_sim.data.dataset import Dataset
from odt_sim.declarations import REQUIRED
from odt_sim.errors import ConfigurationError, OdtSimError
from odt_sim.observers.base import Observer
from odt_sim.simulation.executors.executor import Executor
from odt_sim.strategies.base import Strategy

KINDS: Mapping[str, type] = {
    "strategy": Strategy,
    "aggregator": Aggregator,
    "attack": Attack,
    "data": Dataset,
    "backend": Executor,
    "tracker": Observer,
    "callbacks": object,  # functions and observers; the simulation checks them
}
"""The type of each group's component; the components of other groups are functions."""


def build(node: Any, group: str) -> Any:
    """Return the component that a group's `_target_` names; only this function calls Hydra's `instantiate`.

    Args:
        node: The group's node.
        group: The group's name.

    Raises:
        ConfigurationError: The target cannot be found, does not accept a setting, or is no component of the group.
        OdtSimError: The target itself raised the error.
    """
    settings = plain(node, group)
    target = settings.get("_target_", "nothing")
    if not isinstance(target, str):
        raise ConfigurationError(f"{group}._target_: expected module.name, found {target!r}")
    if "_target_" in settings:
        _check_target(target, f"{group}._target_")
    if unused := unused_defaults(group, target, settings):
        settings = {name: value for name, value in settings.items() if name not in unused}
        node = OmegaConf.masked_copy(node, list(settings))
    _check_settings(group, target, settings)
    try:
        # Unless the node says otherwise, convert to plain lists and mappings, which can also be written as JSON.
        built = hydra.utils.instantiate(node, _convert_=settings.get("_convert_", "all"))
    except InstantiationException as error:
        cause = error.__cause__
        while cause is not None and not isinstance(cause, OdtSimError):
            cause = cause.__cause__
        if cause is not None:
            raise cause from error
        cause = error.__cause__ or error
        raise ConfigurationError(f"{group}: {type(cause).__name__}: {one_line(cause)}") from error
    kind = KINDS.get(group)
    if not (isinstance(built, kind) if kind else callable(built)):
        wanted = kind.__name__ if kind else "a function"
        raise ConfigurationError(
            f"{group}._target_: expected a target that creates {wanted}, found {target}, "
            f"which creates {type(built).__name__}"
        )
    return built


def _check_target(target: str, key: str) -> None:
    """Check that a name can be imported and is callable.

    Raises:
        ConfigurationError: The name cannot be imported, or is neither a class nor a function.
    """
    found = imported(target, key)
    if not callable(found):
        raise ConfigurationError(
            f"{key}: expected the name of a class or function, found {target} of type {type(found).__name__}; correct it"
        )


def _check_settings(group: str, target: str, settings: Mapping[str, Any]) -> None:
    found = component(group, target)
    if found is None:  # a target without a signature
        return
    known = [each.key for each in found.settings]
    for name, value in settings.items():
        hint, key = found.hints.get(name, Any), f"{group}.{name}"
        check_value(key, hint, value)
        if not (found.open or name.startswith("_") or key in known):
            raise ConfigurationError(unknown_key(key, known))
    bound = {"_partial_", "_args_"} & {*settings}
    missing = [
        each for each in found.settings if each.default is REQUIRED and each.key.partition(".")[2] not in settings
    ]
    if missing and not bound:
        name = missing[0].key.partition(".")[2]
        function = group == "callbacks" and not isinstance(imported(target, group), type)
        bind = "to bind the settings of a function, add _partial_: true"
        raise ConfigurationError(
            f"{group}: {target} requires {name!r}; {bind if function else f'set it: {group}.{name}=...'}"
        )


def plain(node: DictConfig, name: str) -> dict[str, Any]:
    """Return a group's settings as plain values.

    Raises:
        ConfigurationError: The node is no group, or a value is missing or cannot be resolved.
    """
    if not isinstance(node, DictConfig):
        raise ConfigurationError(f"{name}: expected a group of settings, found {node!r}; choose one: {name}=...")
    try:
        found = OmegaConf.to_container(node, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigurationError(
            f"{name}: {str(error).splitlines()[0]}; set it: {error.full_key or name}=..."
        ) from error
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items()}
