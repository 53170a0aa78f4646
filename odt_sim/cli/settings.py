"""The command's settings: groups with declared settings, and groups that choose a component."""

from dataclasses import asdict
from typing import Any

from hydra.core.config_store import ConfigStore

from odt_sim.device.plan import TrainingPlan
from odt_sim.settings import ConfiguredFleet, General, Run, Settings, Split

DECLARED: tuple[type[Settings], ...] = (General, Run, ConfiguredFleet, Split, TrainingPlan)
"""The settings that classes declare; those of a component are the parameters of its constructor or function."""

KEYS = frozenset(key for kind in DECLARED for key in kind.all_keys())


def defaults() -> dict[str, Any]:
    """Return the defaults of the declared settings, nested by group."""
    groups = {kind.group: asdict(kind()) for kind in DECLARED}  # type: ignore[call-overload]
    return {**groups.pop(""), **groups}


ConfigStore.instance().store(name="settings", node=defaults())  # conf/config.yaml begins with it
