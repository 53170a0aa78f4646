"""The folders of a user's own options, which a run's saved configuration names."""

from collections.abc import Mapping
from typing import Any

SEARCH_PATH = "hydra.searchpath="
"""The beginning of the override that adds folders or packages with further options."""


def config_folders(hydra: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the arguments of a run that name folders of further options, given Hydra's part of its configuration."""
    sources = hydra.get("runtime", {}).get("config_sources", ())
    given = [f"--config-dir={source['path']}" for source in sources if source["provider"] == "command-line"]
    overrides = hydra.get("overrides", {}).get("hydra", ())
    return (*given, *(each for each in overrides if each.startswith(SEARCH_PATH)))
