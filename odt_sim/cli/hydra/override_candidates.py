"""Completion candidates for an override on the command line."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from omegaconf import OmegaConf

from odt_sim._support.checks import choices
from odt_sim.cli.command_table import COMMANDS
from odt_sim.cli.hydra.options import OPTIONS, option_names
from odt_sim.cli.hydra.overrides import composed
from odt_sim.cli.hydra.settings import COMPONENTS, DECLARED, component
from odt_sim.declarations import Settings, flatten
from odt_sim.errors import ConfigurationError
from odt_sim.settings import ExportedModel


def of_command(command: str, before: Sequence[str], word: str) -> list[str]:
    """Return the candidates for a word.

    Args:
        command: A command that accepts overrides.
        before: The words between the command and this one.
        word: The word so far.
    """
    return _of_searches(command, before, word) if command in ("tune", "benchmark") else _overrides(before, word)


def _of_searches(command: str, before: Sequence[str], word: str) -> list[str]:
    """Return the candidates among the arguments of `tune` or `benchmark` and the overrides that it passes to runs."""
    from odt_sim.cli.commands.benchmark import TASKS, options

    own = {key: default for key, (default, _) in COMMANDS[command].settings.items()}
    tasks = options(TASKS) if command == "benchmark" else []
    shared = [each for each in before if each.partition("=")[0] not in {*own} - {"strategy"}]
    key, equals, _ = word.partition("=")
    task, dot, inner = word.partition(".")
    if equals and key == "task":
        return _values(word, tasks)
    if equals and own.get(key):
        return [f"{key}={own[key]}"]
    if dot and task in tasks:
        return [f"{task}.{each}" for each in _overrides([f"+{TASKS}={task}", *shared], inner)]
    found = _overrides(shared, word)
    return found if equals else [*found, *(f"{name}=" for name in own), *(f"{name}." for name in tasks)]


def _overrides(before: Sequence[str], word: str) -> list[str]:
    """Return the groups and keys; if the word contains `=`, the options or values of its key."""
    try:
        config = composed([override for override in before if "=" in override and "," not in override])
    except ConfigurationError:
        config = composed([])
    settings = flatten(cast(Mapping[str, Any], OmegaConf.to_container(config)))
    key, equals, _ = word.partition("=")
    if not equals:
        added = [group for group in OPTIONS if group not in config]
        return [*(f"{name}=" for name in (*map(str, config), *settings)), *(f"+{group}=" for group in added)]
    values: list[Any] = [*option_names(key.lstrip("+")), *choices(_hint(key, settings))] or [settings.get(key)]
    return _values(word, [value for value in values if value is not None])


def _values(word: str, values: Sequence[Any]) -> list[str]:
    """Return the word with each value after its `=`, or after the last comma of a list."""
    start = word[: 1 + max(word.rfind("="), word.rfind(","))]
    return [f"{start}{value}" for value in values]


def _hint(key: str, settings: Mapping[str, Any]) -> Any:
    """Return the type of a setting; `Any` if unknown."""
    group, _, name = key.partition(".")
    kinds: tuple[type[Settings], ...] = (*DECLARED, ExportedModel)
    declared = {key: hint for kind in kinds for key, hint in kind.hints().items()}
    found = component(group, str(settings.get(f"{group}._target_"))) if group in COMPONENTS else None
    return found.hints.get(name, Any) if found else declared.get(key, Any)
