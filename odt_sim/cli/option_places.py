"""The folders and packages with options of the configuration: the shipped ones, and those that arguments add."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser

from odt_sim.errors import ConfigurationError
from odt_sim.persistence.config_folders import SEARCH_PATH

Places = Sequence[Traversable]
SHIPPED: Places = (files("odt_sim.conf"),)


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
