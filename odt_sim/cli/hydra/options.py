"""The settings and the options of the configuration: the shipped ones, and those in folders that arguments add."""

import ast
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]
from hydra.core.override_parser.overrides_parser import OverridesParser

from odt_sim._support.text import one_line
from odt_sim.cli.hydra.settings import COMPONENTS, DECLARED, argument_texts, component
from odt_sim.declarations import Setting, declared
from odt_sim.errors import ConfigurationError
from odt_sim.persistence.run_folder import SEARCH_PATH
from odt_sim.settings import ConfiguredFleet, ExportedModel, ModelFile

OPTIONS = (*COMPONENTS[:7], "model", "fleet", *COMPONENTS[7:], "experiment")
"""The groups that have options, in the order in which the help shows them."""
SAME = ("name", "build", "seed", "sys_path")
"""Settings of a model that are not listed again for each option."""
UNSET = ("_target_", "defaults")
"""Keys of an option's file that set nothing of its component."""


Places = Sequence[Traversable]
"""The folders and packages with options, in the order in which Hydra searches them."""
SHIPPED: Places = (files("odt_sim.conf"),)


class Section(NamedTuple):
    """A group of settings, or one of its options."""

    name: str
    summary: str
    settings: list[Setting]


def groups() -> list[Section]:
    """Return the declared settings by group, with the command's defaults."""
    fleet = _values("fleet", "default", _text("fleet", "default", SHIPPED))
    sections = [Section(kind.group or "general", _summary(kind), declared(kind)) for kind in DECLARED]
    sections.append(Section("model", _summary(ExportedModel), declared(ExportedModel)))
    return [
        section._replace(settings=_with_values(section.settings, fleet)) if section.name == "fleet" else section
        for section in sections
    ]


def options(group: str, places: Places = SHIPPED) -> list[Section]:
    """Return the options of a group, such as `conf/strategy/fedavg.yaml`."""
    return [option(group, name, places) for name in option_names(group, places)]


def option_names(group: str, places: Places = SHIPPED) -> list[str]:
    """Return the names of the options of a group; those in a folder contain its name, as in `reproduce/school`."""
    names = set[str]()
    for folder in (place.joinpath(group) for place in places):
        inside = [*folder.iterdir()] if folder.is_dir() else []
        nested = [f"{inner.name}/{file.name}" for inner in inside if inner.is_dir() for file in inner.iterdir()]
        names |= {*(file.name for file in inside), *nested}
    return [name.removesuffix(".yaml") for name in sorted(names) if name.endswith(".yaml")]


def option(group: str, name: str, places: Places = SHIPPED) -> Section:
    """Return an option of a group; its settings are the values in its file if its component cannot be imported.

    Raises:
        ConfigurationError: A file of the user cannot be read.
    """
    text = _text(group, name, places)
    comments = [line for line in text.splitlines() if line.startswith("# ") and "@package" not in line]
    values = _values(group, name, text)
    settings: list[Setting] = []
    if group == "model":
        own = _with_values(declared(ExportedModel if "build" in values else ModelFile), values)
        shown = [f"model.{key}" for key in values if key not in SAME]
        settings = [*_arguments(values.get("build", {})), *(each for each in own if each.key in shown)]
    elif group == "fleet":
        settings = [each for each in _with_values(declared(ConfiguredFleet), values) if each.key[6:] in values]
    elif group in COMPONENTS:
        found = component(group, str(values.get("_target_")))
        written = [Setting(f"{group}.{key}", "", value, "") for key, value in values.items() if key not in UNSET]
        settings = _with_values(found.settings, values) if found else written
    return Section(f"{group}={name}", next(iter(comments), "").removeprefix("# "), settings)


def unknown_option(group: str, name: str, known: Sequence[str]) -> str:
    """Return the error message of an option that a group does not have, given those that it has."""
    described = f"odt-sim run --help {group} describes them"
    if "." not in name and (near := get_close_matches(name, known, 1)):
        return f"{group}={name}: no such option; did you mean {near[0]}? {described}"
    target = name if "." in name else "module.Class"
    own = f", or your own class: {group}._target_={target}" if group in ("strategy", "aggregator", "attack") else ""
    return f"{group}={name}: no such option; choose one of {', '.join(known)}{own}; {described}"


def _text(group: str, name: str, places: Places) -> str:
    """Return the text of an option's file in the first place that has it, as Hydra chooses it."""
    paths = (place.joinpath(group, *f"{name}.yaml".split("/")) for place in places)
    return next(path.read_text() for path in paths if path.is_file())


def _values(group: str, name: str, text: str) -> dict[str, Any]:
    try:
        values: dict[str, Any] = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{group}/{name}.yaml: cannot be read: {one_line(error)}; correct it") from error
    return values


def _with_values(settings: Iterable[Setting], values: Mapping[str, Any]) -> list[Setting]:
    """Return settings with the values of an option's file as defaults."""
    return [each._replace(default=values.get(each.key.partition(".")[2], each.default)) for each in settings]


def _arguments(build: Mapping[str, Any]) -> list[Setting]:
    """Return the arguments of a model's function."""
    module, _, name = str(build.get("_target_")).rpartition(".")
    texts = _texts_of(module).get(name, {})
    required = {key: value for key, value in build.items() if key != "_target_" or value == "???"}
    return [Setting(f"model.build.{key}", "", value, texts.get(key, "")) for key, value in required.items()]


@cache
def _texts_of(module: str) -> dict[str, dict[str, str]]:
    """Return the documentation of the arguments of a module's functions, parsed since it may import TensorFlow."""
    try:
        found = find_spec(module)
        tree = ast.parse(Path(str(found and found.origin)).read_text())
    except Exception:  # user code may raise anything; the export reports it
        return {}
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


def parsed_arguments(arguments: Sequence[str]) -> tuple[Namespace, list[str]]:
    """Return the overrides and the common flags among the arguments of `odt-sim run`, and its other flags."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("-m", "--multirun", action="store_true")
    parser.add_argument("-cd", "--config-dir")
    parser.add_argument("-c", "--cfg")
    return parser.parse_known_intermixed_args(arguments)


def option_places(config_dir: str | None, overrides: Sequence[str]) -> Places:
    """Return the places of options in the order in which Hydra searches them.

    Packages are searched in Python's path.

    Args:
        config_dir: A folder of the user, or None.
        overrides: Overrides, among which `hydra.searchpath=[...]` adds folders and packages.

    Raises:
        ConfigurationError: A folder or a package cannot be found.
    """
    given = [each for each in overrides if each.startswith(SEARCH_PATH)]
    added = OverridesParser.create().parse_override(given[-1]).value() if given else []
    own = [("hydra.searchpath", str(each)) for each in (added if isinstance(added, list) else [added])]
    own += [("--config-dir", config_dir)] if config_dir else []
    return [*SHIPPED, *(_place(*each) for each in own)]


def _place(key: str, address: str) -> Traversable:
    """Return the folder or package of an address, such as `my`, `file://my` or `pkg://mine.conf`."""
    kind, _, name = address.rpartition("://")
    if kind == "pkg":
        try:
            return files(name)
        except (ImportError, TypeError) as error:  # TypeError: a module that is no package
            raise ConfigurationError(f"{key}: found no package {name} with options; check the name") from error
    if not Path(name).is_dir():
        raise ConfigurationError(f"{key}: expected a folder of options, found no folder {name}; give its path")
    return Path(name)
