"""The user's modules in this process: actors keep the modules that they have imported, even after a reload here."""

import sys
from collections.abc import Mapping
from typing import Any

from odt_sim._support.user_code import is_users

LoadedCode = Mapping[str, Any]
"""The import specifications of modules, by name; `importlib.reload` and a new import create another one."""


def loaded_code() -> LoadedCode:
    """Return the user's modules that this process has imported.

    Editing a file alone has no effect: this process runs the earlier code until it imports the module again.
    """
    found = {name: getattr(module, "__spec__", None) for name, module in list(sys.modules.items())}
    return {name: spec for name, spec in found.items() if spec and is_users(str(spec.origin))}


def was_reloaded(before: LoadedCode, now: LoadedCode) -> bool:
    """Return whether a module was imported again, as in a notebook after an edit."""
    return any(now.get(name, spec) is not spec for name, spec in before.items())
