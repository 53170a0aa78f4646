"""All settings and options; `python -m odt_sim.cli.settings_reference` prints them as Markdown."""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]

from odt_sim.cli.settings import COMPONENTS, DECLARED, argument_texts, component, default_options
from odt_sim.declarations import Setting, declared
from odt_sim.settings import ConfiguredFleet, ExportedModel, ModelFile

OPTIONS = (
    "strategy",
    "aggregator",
    "attack",
    "data",
    "partition",
    "drift",
    "arrival",
    "model",
    "fleet",
    "backend",
    "tracker",
    "experiment",
)
SAME = ("name", "build", "seed", "sys_path")
"""Settings of a model that are not listed again for each option."""


class Section(NamedTuple):
    """A group of settings, or one of its options."""

    name: str
    summary: str
    settings: list[Setting]


def groups() -> list[Section]:
    """Return the declared settings by group, with the command's defaults."""
    fleet = _values("fleet", "default")
    sections = [Section(kind.group or "general", _summary(kind), declared(kind)) for kind in DECLARED]
    sections.append(Section("model", _summary(ExportedModel), declared(ExportedModel)))
    return [
        section._replace(settings=_with_values(section.settings, fleet)) if section.name == "fleet" else section
        for section in sections
    ]


def options(group: str) -> list[Section]:
    """Return the shipped options of a group, such as `conf/strategy/fedavg.yaml`."""
    return [option(group, name) for name in option_names(group)]


def option_names(group: str) -> list[str]:
    """Return the names of the shipped options of a group; those in a folder contain its name, as in `reproduce/school`."""
    folder = files("odt_sim.conf").joinpath(group)
    nested = [f"{inner.name}/{file.name}" for inner in folder.iterdir() if inner.is_dir() for file in inner.iterdir()]
    names = sorted([file.name for file in folder.iterdir()] + nested)
    return [name.removesuffix(".yaml") for name in names if name.endswith(".yaml")]


def option(group: str, name: str) -> Section:
    """Return a shipped option of a group."""
    comments = [line for line in _text(group, name).splitlines() if line.startswith("# ") and "@package" not in line]
    values = _values(group, name)
    settings: list[Setting] = []
    if group == "model":
        own = _with_values(declared(ExportedModel if "build" in values else ModelFile), values)
        shown = [f"model.{key}" for key in values if key not in SAME]
        settings = [*_arguments(values.get("build", {})), *(each for each in own if each.key in shown)]
    elif group == "fleet":
        settings = [each for each in _with_values(declared(ConfiguredFleet), values) if each.key[6:] in values]
    elif group in COMPONENTS:
        found = component(group, values["_target_"])
        settings = _with_values(found.settings if found else [], values)
    return Section(f"{group}={name}", comments[0].removeprefix("# "), settings)


def unknown_option(group: str, name: str, known: Sequence[str]) -> str:
    """Return the error message of an option that a group does not have, given those that it has."""
    described = f"odt-sim run --help {group} describes them"
    if "." not in name and (near := get_close_matches(name, known, 1)):
        return f"{group}={name}: no such option; did you mean {near[0]}? {described}"
    target = name if "." in name else "module.Class"
    own = f", or your own class: {group}._target_={target}" if group in ("strategy", "aggregator", "attack") else ""
    return f"{group}={name}: no such option; choose one of {', '.join(known)}{own}; {described}"


def _text(group: str, name: str) -> str:
    return files("odt_sim.conf").joinpath(group, *f"{name}.yaml".split("/")).read_text()


def _values(group: str, name: str) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load(_text(group, name)) or {}
    return values


def _with_values(settings: Iterable[Setting], values: Mapping[str, Any]) -> list[Setting]:
    """Return settings with the values of an option's file as defaults."""
    return [each._replace(default=values.get(each.key.partition(".")[2], each.default)) for each in settings]


def _arguments(build: Mapping[str, Any]) -> list[Setting]:
    """Return the arguments of a model's function; those of functions in `odt_sim.export.zoo` are documented."""
    texts = _zoo_texts().get(str(build.get("_target_", "")).rpartition(".")[2], {})
    required = {key: value for key, value in build.items() if key != "_target_" or value == "???"}
    return [Setting(f"model.build.{key}", "", value, texts.get(key, "")) for key, value in required.items()]


@cache
def _zoo_texts() -> dict[str, dict[str, str]]:
    """Return the documentation of the shipped models' arguments, parsed since an import would import TensorFlow."""
    tree = ast.parse(files("odt_sim.export").joinpath("zoo.py").read_text())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {node.name: argument_texts(ast.get_docstring(node) or "") for node in functions}


def _summary(kind: type) -> str:
    return (kind.__doc__ or "").partition("\n")[0]


def shown_value(value: Any) -> str:
    """Return a value as it is written on the command line."""
    return (
        value
        if isinstance(value, str)
        else str(yaml.safe_dump(value, default_flow_style=True, width=999)).split("\n")[0]
    )


def markdown() -> str:
    """Return the reference of all settings as Markdown."""
    lines = ["# Settings", "", "Set a key with `odt-sim run key=value`, and choose an option with `group=option`.", ""]
    chosen = default_options()
    for section in groups():
        lines += [f"## {section.name}", "", _escaped(section.summary), "", *_table(section.settings)]
    for group in OPTIONS:
        lines += [f"## Options of {group}", ""]
        lines += [f"Default: `{group}={chosen[group]}`.", ""] if group in chosen else []
        for each in options(group):
            lines += [f"### `{each.name}`", "", _escaped(each.summary), "", *_table(each.settings)]
    return "\n".join(lines)


def _table(settings: Iterable[Setting]) -> list[str]:
    rows = [
        f"| `{each.key}` | {each.kind} | `{shown_value(each.default)}` | {_escaped(each.text)} |" for each in settings
    ]
    return ["| key | type | default | meaning |", "|---|---|---|---|", *rows, ""] if rows else []


def _escaped(text: str) -> str:
    """Return text in which Markdown does not read `_target_` as emphasis, unless it is in backticks already."""
    return re.sub(r"(?<!`)_target_", r"\\_target\\_", text)


if __name__ == "__main__":
    print(markdown())
