"""The keys that a configuration may have, and advice on unknown ones."""

from collections.abc import Collection, Iterator
from difflib import SequenceMatcher
from typing import Any

from omegaconf import DictConfig

from odt_sim.cli.hydra.settings import COMPONENTS, DECLARED, GROUPS, NESTED, Component, component, unused_defaults
from odt_sim.errors import ConfigurationError
from odt_sim.settings import ExportedModel, ModelFile

OWN = ("hydra", "user")  # groups whose keys are not checked
CLOSE = 0.75  # least similarity, 0 to 1, of a name that is suggested
NO_PATH = (
    "model.path: the chosen model has no path; add model=tflite for a .tflite file, model=keras_file for a Keras file"
)


def check_keys(config: DictConfig) -> None:
    """Refuse unknown keys.

    Raises:
        ConfigurationError: A key is unknown.
    """
    known = known_keys(config)
    for name, node in config.items_ex(resolve=False):
        group = str(name)
        keys = list(_keys(group, node))
        checked = group not in OWN and (group not in COMPONENTS or group in known)
        if group in COMPONENTS and checked and isinstance(node, DictConfig):
            unused = unused_defaults(group, str(node.get("_target_")), node)
            keys = [key for key in keys if key.removeprefix(f"{group}.") not in unused]
        for key in keys if checked else ():
            if key not in known and not key.rpartition(".")[2].startswith("_"):
                raise ConfigurationError(unknown_key(key, known))


def _keys(group: str, node: Any) -> Iterator[str]:
    """Yield the keys of a group to check, including those of nested groups."""
    if not isinstance(node, DictConfig):
        yield group
        return
    for name, value in node.items_ex(resolve=False):
        key = f"{group}.{name!s}"
        yield from _keys(key, value) if key in NESTED else [key]


def takes_any(config: DictConfig, group: str) -> bool:
    """Return whether the component of a group accepts any key, such as the arguments of a user's function."""
    found = _chosen(config, group) if group in COMPONENTS else None
    return found is not None and found.open


def takes(config: DictConfig, key: str) -> bool:
    """Return whether the component of a group may have a setting; one that cannot be imported may have any."""
    group = key.partition(".")[0]
    found = _chosen(config, group)
    return found is None or found.open or key in {each.key for each in found.settings}


def _chosen(config: DictConfig, group: str) -> Component | None:
    """Return the component that a group names; None if it cannot be imported."""
    target = config[group].get("_target_") if isinstance(config.get(group), DictConfig) else None
    return component(group, str(target))


def known_keys(config: DictConfig) -> set[str]:
    """Return the groups and keys that a configuration may have, without components that accept any key or are unknown."""
    model = ExportedModel if "build" in (config.get("model") or {}) else ModelFile
    keys = {key for kind in (*DECLARED, model) for key in kind.hints()}
    keys |= set(GROUPS) - set(COMPONENTS)
    for group in COMPONENTS:
        found = _chosen(config, group)
        keys |= {group, *(each.key for each in found.settings)} if found and not found.open else set()
    return keys


def unknown_key(key: str, known: Collection[str]) -> str:
    """Return the message about an unknown key, with the nearest known keys, or about a group without a default."""
    if key == "model.path":
        return NO_PATH
    if key in known:
        return f"{key}: expected +, since no option is chosen by default; use +{key}=..."
    return f"{key}: unknown setting; {nearest(key, known)}"


def nearest(key: str, known: Collection[str]) -> str:
    """Return the advice on an unknown key: the nearest known keys, and the group for a user's own keys."""
    group, _, name = key.rpartition(".")
    siblings = sorted(each for each in known if each.startswith(f"{group}.")) if group else []
    ranked = sorted(
        ((_similarity(key, each), each) for each in (siblings if group in COMPONENTS else known)), reverse=True
    )
    near = [each for score, each in ranked[:3] if score >= max(CLOSE, ranked[0][0] - 0.05)]
    if near:
        advice = f"did you mean {' or '.join(near)}?"
    elif siblings:
        advice = f"expected one of {', '.join(siblings)}"
    elif group in COMPONENTS:
        advice = f"the chosen {group} has no settings"
    else:
        advice = "odt-sim run --help all lists all keys"
    own = "" if group in GROUPS else f"; put your own keys under user: +user.{name}=..."
    return f"{advice}{own}"


def _similarity(key: str, known: str) -> float:
    """Return the similarity of two keys, about 0 to 1; the initials of a name count almost as the name."""
    name, other = key.rpartition(".")[2], known.rpartition(".")[2]
    same_group = key.partition(".")[0] == known.partition(".")[0]
    initials = name == "".join(word[:1] for word in other.split("_"))
    return 0.9 if initials else SequenceMatcher(None, name, other).ratio() + 0.01 * same_group
