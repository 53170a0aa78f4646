"""The packages of extras: all packages of a part of odt_sim, or single packages, imported where they are used."""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from odt_sim.errors import ConfigurationError, OdtSimError

PACKAGES: dict[str, Sequence[str]] = {
    "flower": ("flwr", "flwr_datasets"),
    "phone": ("segno", "starlette", "uvicorn", "websockets"),
    "watch": ("starlette", "uvicorn"),
}
"""The modules that each extra installs; only the extra's part of odt_sim imports them."""


def check_extra(extra: str) -> None:
    """Check that the packages of an extra are installed.

    Raises:
        ConfigurationError: A package is missing.
    """
    missing = [name for name in PACKAGES[extra] if find_spec(name) is None]
    if missing:
        raise ConfigurationError(f"{extra}: {missing[0]} is missing; run: pip install 'odt_sim[{extra}]'")


def package(module: str, needed: str, extra: str, kind: type[OdtSimError] = ConfigurationError) -> ModuleType:
    """Import a module of an extra.

    Args:
        module: The module.
        needed: The need, for the error, such as `data: sounds need soundfile`.
        extra: The extra that installs the module.
        kind: The type of the error for a missing package.

    Raises:
        OdtSimError: The module cannot be imported; the error is of `kind`.
    """
    try:
        return import_module(module)
    except (ImportError, OSError) as error:  # OSError: a library of the system is missing
        raise kind(f"{needed} ({error}); run: pip install 'odt_sim[{extra}]'") from error
