"""The command `odt-sim new`: write a runnable template of a strategy, a model or an experiment, with its test."""

import keyword
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template

from odt_sim._support.files import write_file
from odt_sim.cli.command_table import RUNS, parsed
from odt_sim.errors import ConfigurationError

STARTS = Path(__file__).with_name("starts")
"""A folder of templates for each kind. `NAME` in paths and `$name` in files become the name, `$title` the class name."""

OPTIONS = Path("my")
"""The folder for written options, as used with `--config-dir`."""


def new(arguments: Sequence[str]) -> int:
    """Write the files of a template into the working folder, print how to use them, and return the exit code."""
    options = parsed("new", arguments)
    written = write_start(options.kind, options.name)
    print(*(f"wrote {path}" for path in written), sep="\n")
    print(f"\nrun it:   odt-sim run --config-dir {OPTIONS} {RUNS[options.kind]}{options.name}")
    print(f"test it:  pytest test_{options.name}.py")
    if find_spec("pytest") is None:
        print("pytest is missing; run: pip install pytest")
    return 0


def write_start(kind: str, name: str, folder: Path = Path()) -> list[Path]:
    """Write the files of a template and return their paths.

    Args:
        kind: A folder of `STARTS`.
        name: The name of the option and the module.
        folder: The folder to write to.

    Raises:
        ConfigurationError: The name is invalid or taken, or a file exists; nothing is written then.
        FileError: A file cannot be written.
    """
    _check_name(kind, name)
    contents = {folder / path: text for path, text in _contents(kind, name).items()}
    for path in contents:
        if path.exists():
            raise ConfigurationError(f"{path}: already exists; choose another name, or remove the file")
    for path, text in contents.items():
        write_file(path, text.encode())
    return list(contents)


def _contents(kind: str, name: str) -> Mapping[Path, str]:
    """Return the text of each file, by path."""
    values = {"name": name, "title": "".join(part.capitalize() for part in name.split("_"))}
    sources = {path.relative_to(STARTS / kind).with_suffix(""): path for path in sorted((STARTS / kind).rglob("*.in"))}
    return {
        target.with_name(target.name.replace("NAME", name)): Template(source.read_text()).substitute(values)
        for target, source in sources.items()
    }


def _check_name(kind: str, name: str) -> None:
    """Refuse names that are invalid in Python or conflict with existing modules or options.

    Raises:
        ConfigurationError: The name is not a valid module name, or is taken.
    """
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise ConfigurationError(
            f"NAME: expected a name for a Python module of lowercase letters, digits and _, such as halfway, found "
            f"{name!r}"
        )
    if (files("odt_sim.conf") / kind / f"{name}.yaml").is_file():
        raise ConfigurationError(f"NAME: {kind}={name} comes with odt_sim; choose another name")
    if not Path(f"{name}.py").exists() and find_spec(name) is not None:
        raise ConfigurationError(
            f"NAME: {name} would hide the installed Python module of that name; choose another name"
        )
