"""The command's settings: those that classes declare, and those of components.

A component is the class or function that the `_target_` of a group such as `strategy` names. Its settings are the
target's parameters, with the annotation as type and `Args:` or `Attributes:` of the docstrings as documentation.
"""

import inspect
import re
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any, NamedTuple, get_type_hints

import yaml  # type: ignore[import-untyped]

from odt_sim._support.checks import expected
from odt_sim.declarations import REQUIRED, Setting, Settings, nested
from odt_sim.device.plan import TrainingPlan
from odt_sim.settings import ConfiguredFleet, General, Run, Split

DECLARED: tuple[type[Settings], ...] = (General, Run, ConfiguredFleet, Split, TrainingPlan)
COMPONENTS = ("strategy", "aggregator", "attack", "data", "partition", "drift", "arrival", "backend", "tracker")
GROUPS = (*COMPONENTS, "model", "fleet", "experiment", "run", "split", "train")
"""The groups at the top level of a configuration."""
SUPPLIED = {"partition": 3, "drift": 2, "arrival": 2}
"""The number of leading arguments of a group's function that are no settings: data, devices and seed."""


def use_libyaml() -> None:
    """Replace PyYAML's safe loader, from which OmegaConf and Hydra derive theirs, by libyaml's, which is ten times as fast.

    Both give the same values and the same types of errors. PyYAML's wheels contain libyaml; other builds may lack it.
    """
    yaml.SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


use_libyaml()


def defaults() -> dict[str, Any]:
    """Return the defaults of the declared settings, nested by group."""
    groups = {kind.group: asdict(kind()) for kind in DECLARED}  # type: ignore[call-overload]
    return {**groups.pop(""), **groups}


def default_options() -> dict[str, str]:
    """Return the default option of each group."""
    entries = yaml.safe_load(files("odt_sim.conf").joinpath("config.yaml").read_text())["defaults"]
    return {group: name for entry in entries if isinstance(entry, dict) for group, name in entry.items()}


@cache
def default_settings(group: str) -> dict[str, Any]:
    """Return the content of the file of a group's default option; empty for a group without one."""
    name = default_options().get(group)
    path = files("odt_sim.conf").joinpath(group, f"{name}.yaml")
    return (yaml.safe_load(path.read_text()) or {}) if name else {}


NESTED: dict[str, str] = {
    inner.group: next(iter(inner.hints())) for kind in DECLARED for inner in nested(kind).values()
}
"""The nested groups, with the key that their short form sets, such as in `fleet.profiles=phones`."""


class Component(NamedTuple):
    """The settings of a component.

    Attributes:
        settings: The settings, as the help shows them.
        hints: The types of the settings, by name.
        open: Whether the component accepts further settings.
    """

    settings: list[Setting]
    hints: Mapping[str, Any]
    open: bool


def component(group: str, target: str) -> Component | None:
    """Return the settings of a group's component; None if the component cannot be imported or has no signature.

    Args:
        group: One of `COMPONENTS`.
        target: The dotted name of a class or function.
    """
    try:
        module, _, name = target.rpartition(".")
        call = getattr(import_module(module), name)
        made = call.__init__ if inspect.isclass(call) else call
        parameters = list(inspect.signature(call).parameters.values())
        hints = {**{each.name: each.annotation for each in parameters}, **get_type_hints(made)}
    except Exception:  # user code may raise anything; building the component reports it
        return None
    leading = SUPPLIED.get(group, 0)
    named = [each for each in parameters[leading:] if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    documented = (call, made) if call is made else (*reversed(call.__mro__), made)
    texts = {name: text for each in documented for name, text in _texts(each).items()}
    settings = [
        Setting(
            f"{group}.{each.name}",
            expected(hints.get(each.name, Any)),
            REQUIRED if each.default is each.empty else each.default,
            texts.get(each.name, ""),
        )
        for each in named
    ]
    return Component(settings, hints, any(each.kind is each.VAR_KEYWORD for each in parameters))


def _texts(documented: Any) -> dict[str, str]:
    return argument_texts(inspect.getdoc(documented) or "")


def argument_texts(docstring: str) -> dict[str, str]:
    """Return the documentation of arguments or attributes, by name, from a dedented Google-style docstring.

    Python's `None` becomes `null`, as on the command line.
    """
    section = re.search(r"^(?:Args|Attributes):\n((?:[ ]{4}.*\n?|\n)*)", docstring, re.M)
    entries = re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", section[1] if section else "", re.M)
    return {name: re.sub(r"\bNone\b", "null", " ".join(text.split())).rstrip(".") for name, text in entries}


def unused_defaults(group: str, target: str, settings: Mapping[Any, Any]) -> set[str]:
    """Return the settings of a group's default option that have its values and that a user's `_target_` does not accept."""
    found = component(group, target)
    if found is None or found.open:
        return set()
    known = {each.key for each in found.settings}
    further = {str(name) for name in settings if f"{group}.{name}" not in known and not str(name).startswith("_")}
    defaults = default_settings(group) if further else {}
    return {name for name in further if name in defaults and settings.get(name) == defaults[name]}
