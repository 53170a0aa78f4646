"""Commands that `ray job submit` runs on the head, in a temporary copy of the user's folder."""

import json
import os
from pathlib import Path

JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""The environment variable through which `ray job submit` passes a job's runtime environment to the driver."""


def is_submitted() -> bool:
    """Return whether this command was submitted: its user cannot resolve its relative paths."""
    return JOB_CONFIG in os.environ


def lost(folder: Path, setting: str) -> str | None:
    """Return a warning about results in Ray's copy of the user's folder, which Ray deletes some time after the job.

    Args:
        folder: The folder of the results.
        setting: The setting that names this folder.
    """
    environment = json.loads(os.environ.get(JOB_CONFIG, "{}")).get("runtime_env") or {}
    if not environment.get("working_dir") or not folder.absolute().is_relative_to(Path.cwd()):
        return None
    return f"results go to Ray's temporary copy of your folder; set a permanent folder: {setting}=/shared/..."
