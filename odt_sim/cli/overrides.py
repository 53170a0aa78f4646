"""Settings that were added and that nobody reads: Hydra takes any key by `+`."""

import re
from collections.abc import Collection, Sequence
from difflib import get_close_matches

from omegaconf import DictConfig, OmegaConf

from odt_sim.errors import ConfigurationError

ROOT = (
    *("aggregator", "backend", "data", "drift", "fleet", "model", "partition", "run", "split", "strategy", "tracker"),
    "train",
)
"""The groups of `conf/config.yaml`."""

CLOSE = 0.75  # of names, as `difflib` has it: `round` is close to `rounds`, `training` to `train`


def check_added(config: DictConfig, known: Collection[str]) -> None:
    """Checks that no setting was added that would change nothing.

    What another setting refers to is the user's own, and so is, at the top, what is called like no setting and no group. What
    groups take of which no key is known is their `_target_`'s to say.

    Args:
        config: The whole configuration.
        known: The keys that odt_sim itself reads, such as `train.epochs`.

    Raises:
        ConfigurationError: There is no such setting.
    """
    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict)
    closed = {_group(key) for key in known if "." in key}
    groups = {str(group): held for group, held in plain.items() if isinstance(held, dict)}
    keys = [f"{group}.{name}" for group, held in groups.items() for name in held]
    strange = [key for key in keys if key not in known and _group(key) in closed]
    settings = [key for key in keys if key not in strange]
    alike = {
        key: _alike(key, settings) or sorted(one for one in known if _group(one) == _group(key)) for key in strange
    }
    alike |= {name: _alike(name, settings) for name in map(str, plain) if name not in groups and name not in known}
    alike |= {name: get_close_matches(name, ROOT, cutoff=CLOSE) for name in groups if name not in ROOT}
    for key, instead in alike.items():
        if instead and not re.search(rf"\$\{{{re.escape(key)}[.}}]", str(plain)):
            raise ConfigurationError(f"{key}: there is no such setting; there is {', '.join(instead)}")


def _group(key: str) -> str:
    return key.partition(".")[0]


def _alike(key: str, settings: Sequence[str]) -> list[str]:
    """Returns the settings whose own names are close to that of a key, the closest first."""
    names = [setting.rpartition(".")[2] for setting in settings]
    close = get_close_matches(key.rpartition(".")[2], sorted(set(names)), cutoff=CLOSE)
    return [setting for one in close for setting, name in zip(settings, names, strict=True) if name == one]
