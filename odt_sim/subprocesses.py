"""Python processes of our own."""

import os
from collections.abc import Mapping
from pathlib import Path


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Returns this process's environment, with more, in which a Python finds this very odt_sim."""
    source = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, **more, "PYTHONPATH": path}
