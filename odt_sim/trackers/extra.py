"""Importing a third-party tracker only where it is asked for."""

from importlib import import_module
from types import ModuleType

from odt_sim.errors import ConfigurationError


def required(module: str, extra: str) -> ModuleType:
    """Imports a module of an optional dependency.

    Args:
        module: The module.
        extra: The extra of odt_sim that installs it.

    Raises:
        ConfigurationError: It is not installed, or cannot be imported.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigurationError(
            f"tracker={extra}: cannot import {module} ({error}); run: pip install 'odt_sim[{extra}]'"
        ) from error
