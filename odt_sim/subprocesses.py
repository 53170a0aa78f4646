"""The environment of Python subprocesses."""

import os
from collections.abc import Mapping
from pathlib import Path


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment and more variables, in which Python imports this odt_sim."""
    source = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, **more, "PYTHONPATH": path}
