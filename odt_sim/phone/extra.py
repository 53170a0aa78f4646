"""The packages of the extra `phone`, which only this part of odt_sim imports."""

from importlib.util import find_spec

from odt_sim.errors import ConfigurationError

PACKAGES = ("segno", "starlette", "uvicorn", "websockets")


def check_extra() -> None:
    """Check that the packages of the extra `phone` are installed.

    Raises:
        ConfigurationError: One is missing.
    """
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise ConfigurationError(f"phone: {missing[0]} is missing; run: pip install 'odt_sim[phone]'")
