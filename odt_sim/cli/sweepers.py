"""Registration of odt_sim's sweepers in Hydra: `hydra/sweeper=optuna` and `hydra/sweeper=random`."""

from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins

from odt_sim.cli.optuna_sweeper import OptunaSweeper
from odt_sim.cli.overrides import key_of
from odt_sim.cli.random_sweeper import RandomSweeper
from odt_sim.cli.search_sweeper import GROUP, SearchSweeper
from odt_sim.errors import ConfigurationError

SHARED: Mapping[str, Any] = {"n_trials": 20, "n_jobs": 1, "seed": 0, "params": None}
OPTUNA: Mapping[str, Any] = {"sampler": "tpe", "pruner": "none", "pruner_settings": None}


def check_sweeper(arguments: Sequence[str]) -> None:
    """Refuse unknown settings of a sweeper that the arguments choose.

    Args:
        arguments: The arguments of `odt-sim run`.

    Raises:
        ConfigurationError: A setting is unknown.
    """
    chosen = [each.partition("=")[2] for each in arguments if each.startswith("hydra/sweeper=")]
    known = {"random": SHARED, "optuna": {**SHARED, **OPTUNA}}.get(chosen[-1] if chosen else "", {})
    keys = (key for each in arguments if (key := key_of(each)) and key.startswith(f"{GROUP}."))
    for key in keys if known else ():
        if key.split(".")[2] not in known:
            why = "; the metric (run.metric) decides whether larger is better" if key == f"{GROUP}.direction" else ""
            raise ConfigurationError(
                f"{key}: unknown setting of hydra/sweeper={chosen[-1]}; expected one of {', '.join(known)}{why}"
            )


def register_sweepers() -> None:
    """Register the sweepers in Hydra, and replace Hydra's basic sweeper under its name, which saved sweeps contain."""
    plugins = Plugins.instance()  # executes the modules of Hydra's plugins again, so import from them only afterwards
    from odt_sim.cli.grid_sweeper import BASIC, GridSweeper

    plugins.class_name_to_class[BASIC] = GridSweeper
    _register("random", RandomSweeper, SHARED)
    _register("optuna", OptunaSweeper, {**SHARED, **OPTUNA})


def _register(name: str, sweeper: type[SearchSweeper], settings: Mapping[str, Any]) -> None:
    # Hydra only accepts plugins of the package hydra_plugins, which it does not find in editable installations.
    target = f"hydra_plugins.odt_sim.{sweeper.__name__}"
    Plugins.instance().class_name_to_class[target] = sweeper
    node = {"_target_": target, **settings}
    ConfigStore.instance().store(group="hydra/sweeper", name=name, node=node, provider="odt_sim")
