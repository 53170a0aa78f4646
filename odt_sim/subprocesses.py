"""The environment and the end of Python subprocesses."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment and more variables, in which Python imports this odt_sim."""
    source = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, **more, "PYTHONPATH": path}


def end(code: int) -> NoReturn:
    """End this process at once: freeing a large model and its interpreters would take a sixth of a verification."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
