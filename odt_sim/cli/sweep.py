"""What a sweep sets for all of its jobs."""

from collections.abc import Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException


def sweepable(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments of `odt-sim run` so that a sweep may set keys of the options that it chooses from.

    Hydra composes a sweep's own configuration without what is swept, that is with the default option of a swept group, in
    which a key such as that of `strategy=ditto,mr_mtl strategy.regularization=1` need not exist. It leaves out a choice of
    one value as well, and each job then has it.
    """
    if not {"-m", "--multirun"} & set(arguments):
        return list(arguments)
    overrides = [_parsed(argument) for argument in arguments]
    groups = tuple(f"{override.key_or_group}." for override in overrides if override and override.is_sweep_override())
    return [_chosen(*pair, groups) for pair in zip(arguments, overrides, strict=True)]


def _parsed(argument: str) -> Override | None:
    try:
        return None if argument.startswith("-") else OverridesParser.create().parse_overrides([argument])[0]
    except HydraException:
        return None  # a flag's value; or an error that Hydra explains


def _chosen(argument: str, override: Override | None, groups: tuple[str, ...]) -> str:
    key, _, value = argument.partition("=")
    if not override or not value or override.is_sweep_override() or not override.key_or_group.startswith(groups):
        return argument
    return f"{key}=choice({value})"
