"""Settings that were added and that nobody reads: Hydra takes any key by `+`."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches

from omegaconf import DictConfig, OmegaConf

from odt_sim.errors import ConfigurationError

GROUPS = ("fleet", "run", "split", "train")
"""The groups of which odt_sim itself reads each key; what another group takes its `_target_` decides."""

CLOSE = 0.8  # of names, as `difflib` has it: `round` is close to `rounds`


def check_added(config: DictConfig, known: Collection[str]) -> None:
    """Checks that no setting was added that would change nothing.

    A name at the top of the configuration is the user's own where another setting refers to it, or none is called like it.

    Args:
        config: The whole configuration.
        known: The keys that odt_sim itself reads, such as `train.epochs`.

    Raises:
        ConfigurationError: There is no such setting.
    """
    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict)
    keys = [f"{group!s}.{name!s}" for group, held in plain.items() if isinstance(held, dict) for name in held]
    added = [key for key in keys if key.startswith(tuple(f"{group}." for group in GROUPS)) and key not in known]
    settings = [key for key in keys if key not in added]
    for key in added:
        alike = _alike(key, settings) or [one for one in sorted(known) if one.startswith(f"{key.partition('.')[0]}.")]
        raise ConfigurationError(f"{key}: there is no such setting; there is {', '.join(alike)}")
    for name in (str(name) for name, held in plain.items() if not isinstance(held, dict) and name not in known):
        alike = _alike(name, settings)
        if alike and "${" + name + "}" not in str(plain):
            raise ConfigurationError(f"{name}: there is no such setting; there is {', '.join(alike)}")


def _alike(key: str, settings: Sequence[str]) -> list[str]:
    """Returns the settings whose own names are close to that of a key, the closest first."""
    names = [setting.rpartition(".")[2] for setting in settings]
    close = get_close_matches(key.rpartition(".")[2], sorted(set(names)), cutoff=CLOSE)
    return [setting for one in close for setting, name in zip(settings, names, strict=True) if name == one]
