"""The help of `odt-sim run`: an overview, or what a topic names: a group, an option, keys or a word."""

import shutil
import textwrap
from collections.abc import Iterator, Sequence

from odt_sim.cli.hydra.options import (
    OPTIONS,
    SHIPPED,
    Places,
    Section,
    groups,
    option,
    option_names,
    options,
    shown_value,
    unknown_option,
)
from odt_sim.cli.hydra.settings import default_options
from odt_sim.declarations import Setting
from odt_sim.errors import ConfigurationError

USAGE = """usage: odt-sim run [-m] [OVERRIDE ...]

Run an experiment, or with -m a sweep over comma-separated values.

  odt-sim run strategy=fedper fleet.devices=50     choose an option, set a key
  odt-sim run -m strategy=local,fedavg seed=0,1,2  sweep
  odt-sim run +experiment=demo                     run a shipped experiment
  odt-sim run +user.note=mine                      add a key, for ${user.note}
  odt-sim run --cfg job                            print the configuration
  odt-sim run --config-dir DIR                     add a folder of options

More help:
  odt-sim run --help fleet            the settings and the options of a group
  odt-sim run --help strategy=fedper  an option and its settings
  odt-sim run --help fleet.schedule   a key, or all keys that begin with it
  odt-sim run --help battery          settings and options that contain a word
  odt-sim run --help all              everything
"""
WIDEST = 110  # characters of a line, in wide terminals, too


def run_help(topics: Sequence[str], places: Places = SHIPPED) -> str:
    """Return the help on topics; without any, an overview.

    Args:
        topics: Groups, options (`strategy=fedper`), keys or their beginnings, words, or `all`.
        places: The places of options.

    Raises:
        ConfigurationError: Nothing has this name, and no text contains it.
    """
    if not topics:
        return _overview(places)
    return "\n".join(line for topic in topics for line in [*_about(topic.lstrip("+"), places), ""])


def _overview(places: Places) -> str:
    lines, chosen = [USAGE, "Settings:"], default_options()
    for section in groups():
        lines.append(_entry(section.name, f"{section.summary} {', '.join(_names(section))}"))
    lines += ["", "Groups of options, with their defaults:"]
    for group in OPTIONS:
        name = f"{group}={chosen[group]}" if group in chosen else f"+{group}"
        lines.append(_entry(name, ", ".join(option_names(group, places))))
    return "\n".join(lines)


def _names(section: Section) -> list[str]:
    """Return the names of a group's settings; nested groups, such as `fleet.schedule`, as `schedule.*`."""
    names = [setting.key.removeprefix(f"{section.name}.").partition(".") for setting in section.settings]
    return list(dict.fromkeys(f"{name}.*" if inner else name for name, _, inner in names))


def _about(topic: str, places: Places) -> Iterator[str]:
    """Yield the lines about a topic."""
    key, equals, values = topic.partition("=")
    if topic == "all":
        yield USAGE
        for name in dict.fromkeys([*(section.name for section in groups()), *OPTIONS]):
            yield from [*_group(name, places, in_full=True), ""]
    elif key in OPTIONS and equals:
        known = option_names(key, places)
        for name in values.split(","):
            if name not in known:
                raise ConfigurationError(unknown_option(key, name, known))
            yield from _section(option(key, name, places))
    elif key in OPTIONS or key in {section.name for section in groups()}:
        yield from _group(key, places)
    else:
        yield from _found(topic, places)


def _group(name: str, places: Places, *, in_full: bool = False) -> Iterator[str]:
    """Yield the settings of a group, and its options, each in one line or in full."""
    for section in groups():
        if section.name == name:
            yield from _section(section)
    if name in OPTIONS:
        chosen = default_options().get(name)
        yield f"{name}: choose an option (default: {chosen})" if chosen else f"+{name}: choose an option"
        for each in options(name, places):
            yield from _section(each, "  ") if in_full else [_entry(each.name.partition("=")[2], each.summary)]


def _found(topic: str, places: Places) -> Iterator[str]:
    """Yield the settings with a key or its beginning, or all settings and options that contain a word.

    Raises:
        ConfigurationError: There are none.
    """
    key, word = topic.partition("=")[0], topic.lower()

    def fits(setting: Setting) -> bool:
        if "." in key:
            return setting.key == key or setting.key.startswith(f"{key}.")
        return word in f"{setting.key} {setting.text}".lower()

    lines: list[str] = []
    for section in (*groups(), *(each for group in OPTIONS for each in options(group, places))):
        settings = [setting for setting in section.settings if fits(setting)]
        named = "." not in key and word in f"{section.name} {section.summary}".lower()
        if settings or named:
            lines += _section(section._replace(settings=settings))
    if not lines:
        raise ConfigurationError(
            f"--help {topic}: no setting or option contains this; odt-sim run --help lists the groups"
        )
    yield from lines


def _section(section: Section, indent: str = "") -> Iterator[str]:
    yield _wrapped(f"{section.name}: {section.summary}", indent, indent + "  ")
    for setting in section.settings:
        kind = f" ({setting.kind})" if setting.kind else ""
        yield f"{indent}  {setting.key}={shown_value(setting.default)}"
        if text := f"{setting.text}{kind}".strip():
            yield _wrapped(text, indent + "      ", indent + "      ")


def _entry(name: str, text: str) -> str:
    """Return a line of a list: a name, and next to it a text."""
    return _wrapped(f"{name:<19} {text}".rstrip(), "  ", " " * 22)


def _wrapped(text: str, first: str, rest: str) -> str:
    """Wrap a text at the width of the terminal, between words."""
    width = max(min(shutil.get_terminal_size().columns, WIDEST), len(rest) + 20)
    return "\n".join(
        textwrap.wrap(
            text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
        )
    )
