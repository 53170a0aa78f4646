"""Let Hydra compose the configuration of a run once.

Hydra composes it a first time only for `hydra.mode`, which decides between a run and a sweep without -m.
"""

import re
from collections.abc import Sequence
from typing import Any

from hydra._internal.hydra import Hydra

SHIPPED = {"pkg://hydra.conf", "pkg://odt_sim.conf", "structured://"}
"""The search path without folders of the user: its only options that may set `hydra.mode` are experiments."""
SETS_MODE = re.compile(r"[+~]*(hydra|experiment)\b")

_composed_mode = Hydra.get_mode


def use_known_mode() -> None:
    """Replace Hydra's search for `hydra.mode`."""
    Hydra.get_mode = _mode  # type: ignore[method-assign]


def _mode(self: Hydra, config_name: str | None, overrides: Sequence[str]) -> Any:
    """Return `hydra.mode`; None if it is not set, without composing the configuration if nothing can set it."""
    paths = {each.path for each in self.config_loader.get_search_path().get_path()}
    if paths <= SHIPPED and not any(map(SETS_MODE.match, overrides)):
        return None
    return _composed_mode(self, config_name, list(overrides))
