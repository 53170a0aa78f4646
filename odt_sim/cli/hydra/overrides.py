"""Overrides: configuration composition, unknown keys and sweeps."""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf

from odt_sim.cli.hydra.keys import check_keys, known_keys, nearest, takes_any, unknown_key
from odt_sim.cli.hydra.options import option_names, parsed_arguments, unknown_option
from odt_sim.cli.hydra.settings import COMPONENTS, GROUPS, NESTED, default_options, defaults
from odt_sim.errors import ConfigurationError
from odt_sim.export.cache import OPTIONS
from odt_sim.persistence.run_folder import SEARCH_PATH

CONFIG = {"version_base": "1.3", "config_name": "config"}
HYDRA_FLAGS = frozenset(  # https://hydra.cc/docs/advanced/hydra-command-line-flags
    f"--{name}"
    for name in (
        *("help", "hydra-help", "version", "cfg", "resolve", "package", "run", "multirun", "shell-completion"),
        *("config-path", "config-name", "config-dir", "experimental-rerun", "info"),
    )
)
OPTIMIZER = "model.optimizer"  # accepts the settings of any optimizer
OPTIONAL = frozenset(f"model.{name}" for name in OPTIONS)
STRUCTURE = frozenset("'\"\\[](){}")  # characters of values that are not plain text
SEARCH_KEY = SEARCH_PATH.removesuffix("=")

ConfigStore.instance().store(name="settings", node=defaults())  # the first entry of conf/config.yaml


def composed(overrides: Sequence[str], folder: str | None = None) -> DictConfig:
    """Return the configuration with overrides, without starting a run.

    Args:
        overrides: The overrides.
        folder: A folder with further options.

    Raises:
        ConfigurationError: An override does not fit.
    """
    overrides = [quoted(each) for each in overrides]
    parsed = [_parsed(each) for each in overrides]
    _check_options(parsed)
    for text, override in zip(overrides, parsed, strict=True):
        if override and override.is_sweep_override():
            raise ConfigurationError(_swept(text, override))
    overrides = _with_plus(overrides)
    try:
        return _composed(overrides, folder)
    except HydraException as error:
        raise ConfigurationError(_misfit(error, overrides, folder) or explained(error)) from error


def _composed(overrides: Sequence[str], folder: str | None) -> DictConfig:
    path = [f"hydra.searchpath=[file://{Path(folder).absolute()}]"] if folder else []
    with hydra.initialize_config_module("odt_sim.conf", version_base=CONFIG["version_base"]):
        return hydra.compose(CONFIG["config_name"], overrides=[*overrides, *path])


def _swept(argument: str, override: Override) -> str:
    """Return the message about several values without -m."""
    key, _, value = argument.partition("=")
    if override.key_or_group in GROUPS:
        return f"{key}: found several options; sweep by -m {key}={value}"
    sweep = override.value()
    listed = f", or write a list: {key}=[{value}]" if isinstance(sweep, ChoiceSweep) and sweep.simple_form else ""
    return f"{key}: found several values; sweep by -m {key}={value}{listed}"


def _misfit(error: HydraException, overrides: Sequence[str], folder: str | None) -> str | None:
    """Return the message about a key that the configuration lacks which the other overrides choose; None without one."""
    if isinstance(error, OverrideParseException | MissingConfigException):
        return None
    parsed = {text: override for text in overrides if (override := _parsed(text)) and not override.is_delete()}
    try:
        config = _composed([text for text, override in parsed.items() if _chooses(override)], folder)
    except HydraException:
        return None
    values = OmegaConf.to_container(config)
    given = (override for override in parsed.values() if not (override.is_add() or override.is_force_add()))
    keys = (override.key_or_group for override in given if not _chooses(override))
    missing = next(filter(None, (_missing(key, values) for key in keys if not key.startswith("hydra."))), None)
    if missing is None:
        return None
    free = missing.count(".") > 1 and missing.rpartition(".")[0] not in NESTED
    if free or takes_any(config, missing.partition(".")[0]):
        return f"{missing}: expected +, since the key is new; use +{missing}=..."
    return unknown_key(missing, known_keys(config))


def _chooses(override: Override) -> bool:
    """Return whether an override chooses an option of a group, or adds places of options."""
    name = override.key_or_group
    return "/" in name or name in default_options() or (name in GROUPS and override.is_add()) or name == SEARCH_KEY


def _missing(key: str, values: Any) -> str | None:
    """Return the beginning of a key that nested values lack; None if they have the key."""
    names = key.split(".")
    for depth, name in enumerate(names, 1):
        if not isinstance(values, dict) or name not in values:
            return ".".join(names[:depth])
        values = values[name]
    return None


def explained(error: Exception) -> str:
    """Return an error of Hydra as one line."""
    if isinstance(error, MissingConfigException) and error.options:
        group, _, option = str(error.missing_cfg_file).partition("/")
        return unknown_option(group, option, error.options)
    if isinstance(error, OverrideParseException):
        key, equals, value = error.override.partition("=")
        if equals:
            quotes = f"put text with such characters in a second pair of quotes, as in '{key}=\"TEXT\"'"
            return f"{key}: cannot read {value}; {quotes}"
        return f"expected KEY=VALUE, found {key}; odt-sim run --help all lists all keys"
    lines = [str(each).strip().partition("\n")[0].rstrip(".") for each in (error, error.__cause__) if each]
    return f"{'; '.join(dict.fromkeys(lines))}; odt-sim run --help all lists all keys"


def check_overrides(arguments: Sequence[str], *, composes: bool = True) -> None:
    """Refuse unknown keys before the first job of a run or a sweep starts.

    Args:
        arguments: The arguments of `odt-sim run`; calls with rare flags are left to Hydra.
        composes: Whether Hydra will compose them later; if so, only sweeps and keys added with + are checked here.

    Raises:
        ConfigurationError: An override does not fit, or names an unknown key.
    """
    options, flags = parsed_arguments(arguments)
    for flag in (flag.partition("=")[0] for flag in flags):
        if flag.startswith("--") and flag not in HYDRA_FLAGS:
            known, key = known_keys(composed([])), flag.removeprefix("--").replace("-", "_")
            advice = f"use {key}=..." if key in known else nearest(key, known)
            raise ConfigurationError(f"{flag}: expected key=value without dashes; {advice}")
    overrides = [_parsed(each) for each in options.overrides]
    added = [
        each
        for each in overrides
        if each and (each.is_add() or each.is_force_add()) and each.key_or_group not in GROUPS
    ]
    if flags or not overrides or (composes and not options.multirun and not added):
        return
    jobs = _jobs(options.overrides, overrides) if options.multirun else [options.overrides]
    for job in jobs:
        check_keys(composed(job, options.config_dir))


def _jobs(arguments: Sequence[str], overrides: Sequence[Override | None]) -> Iterator[list[str]]:
    """Yield the overrides of some jobs of a sweep, such that each option of a swept group is chosen at least once."""
    choices = [_choices(*pair) for pair in zip(arguments, overrides, strict=True)]
    for job in range(max(map(len, choices))):
        yield [each[job % len(each)] for each in choices if each]


def _choices(argument: str, override: Override | None) -> list[str]:
    """Return an override once for each swept option of a group, or with the first swept value of a key."""
    if override is None or not override.is_sweep_override():
        return [argument]
    key, value = override.get_key_element(), override.value()
    if isinstance(value, ChoiceSweep | RangeSweep):
        values = list(map(str, override.sweep_string_iterator()))
        return [f"{key}={each}" for each in (values if override.key_or_group in GROUPS else values[:1])]
    return [f"{key}={value.start!r}"] if isinstance(value, IntervalSweep) else []  # a Glob is only for options


def quoted(argument: str) -> str:
    """Return an override with quotes around text that Hydra reads only in quotes: `data.path=/data/Köln/x.csv`."""
    key, equals, value = argument.partition("=")
    if not equals or STRUCTURE & {*value} or _parsed(f"{key}=x") is None or _parsed(argument) is not None:
        return argument
    pieces = [each if _parsed(f"{key}={each}") else f"'{each}'" for each in value.split(",")]
    return f"{key}={','.join(pieces)}"


def sweepable(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of `odt-sim run` in a form that Hydra accepts.

    Users may omit the + for export options and for settings of an optimizer or of a user's `_target_`. A sweep may set
    keys of the options that it chooses from, as in `strategy=ditto,mr_mtl strategy.regularization=1`. Hydra composes
    the sweep's configuration with the default option of a swept group, which may lack such a key. Since Hydra leaves
    out swept keys, such keys become sweeps with a single choice.

    Raises:
        ConfigurationError: A group is given a list, a number or null.
    """
    overrides = [_parsed(argument) for argument in arguments]
    _check_options(overrides)
    arguments = _with_plus(arguments)
    if not {"-m", "--multirun"} & set(arguments):
        return arguments
    groups = tuple(f"{override.key_or_group}." for override in overrides if override and override.is_sweep_override())
    return [_as_choice(*pair, groups) for pair in zip(arguments, overrides, strict=True)]


def _check_options(overrides: Sequence[Override | None]) -> None:
    """Refuse values of a group that are no option: a list, a number or null."""
    for override in overrides:
        if not override or override.is_delete() or override.key_or_group not in GROUPS:
            continue
        group, value = override.key_or_group, override.value()
        if isinstance(value, list) and value:
            choices = ",".join(map(str, value))
            raise ConfigurationError(f"{group}: expected one option, found a list; sweep by -m {group}={choices}")
        if value is None or isinstance(value, int | float | list):
            found = "null" if value is None else value
            raise ConfigurationError(
                f"{group}: expected an option, found {found}; odt-sim run --help {group} lists them"
            )


def _with_plus(arguments: Sequence[str]) -> list[str]:
    """Return overrides with ++ for keys that option files lack: of an export, an optimizer, a user's `_target_` or option.

    The short form of a nested group is expanded: `fleet.profiles=phones` sets `fleet.profiles.table`.
    """
    arguments = [_lengthened(argument) for argument in arguments]
    keys = [key_of(argument) or "" for argument in arguments]
    replaced = {key.removesuffix("_target_") for key in keys if key.endswith("._target_")}
    replaced |= {
        f"{key}." for key, each in zip(keys, arguments, strict=True) if key in COMPONENTS and _is_own(key, each)
    }

    def lacks(key: str) -> bool:
        return (
            key in OPTIONAL
            or key.startswith(OPTIMIZER)
            or (key.startswith(tuple(replaced)) and not key.endswith("._target_"))
        )

    return [
        f"++{each}" if each.startswith(f"{key}=") and lacks(key) else each
        for each, key in zip(arguments, keys, strict=True)
    ]


def _is_own(group: str, choice: str) -> bool:
    """Return whether an override of a group chooses an option that odt_sim does not ship."""
    return not {*choice.partition("=")[2].split(",")} <= {*option_names(group)}


def _lengthened(argument: str) -> str:
    key, equals, value = argument.partition("=")
    return f"{NESTED[key]}={value}" if equals and key in NESTED and not value.startswith("{") else argument


def _as_choice(argument: str, override: Override | None, groups: tuple[str, ...]) -> str:
    key, _, value = argument.partition("=")
    if not override or not value or override.is_sweep_override() or not override.key_or_group.startswith(groups):
        return argument
    return f"{key}=choice({value})"


@cache
def _parsed(argument: str) -> Override | None:
    """Return a parsed override; None for a flag, a flag's value, or an error that Hydra explains later."""
    try:
        return None if argument.startswith("-") else OverridesParser.create().parse_overrides([argument])[0]
    except HydraException:
        return None


def key_and_value(argument: str) -> tuple[str, Any]:
    """Return the key that an override sets, and the value.

    Raises:
        ConfigurationError: The argument is no override, deletes a key, or has several values.
    """
    override = _parsed(quoted(argument))
    if override is None or override.is_delete() or override.is_sweep_override():
        raise ConfigurationError(f"{argument}: expected KEY=VALUE, with one value")
    return override.key_or_group, override.value()


def key_of(argument: str) -> str | None:
    """Return the key or group that an override sets; None if the argument is no override."""
    override = _parsed(argument)
    return override.key_or_group if override else None
