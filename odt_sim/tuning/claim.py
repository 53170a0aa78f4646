"""Check that a folder of trials is only used with the same settings."""

import json

from odt_sim._support.files import write_file
from odt_sim.errors import CheckpointError, ConfigurationError
from odt_sim.persistence.run_folder import TASK, document
from odt_sim.tuning.plan import IRRELEVANT, Plan

AT_ONCE = ("hydra.sweeper.n_jobs=",)  # the number of trials that run together


def claim(plan: Plan, what: str) -> None:
    """Record the settings of a plan's trials in its folder, or refuse a folder with other settings.

    Strategies, seeds and the budget may change: each strategy has its own trials, and a larger budget continues them.

    Args:
        plan: The plan.
        what: The name of the folder's content, for errors.

    Raises:
        ConfigurationError: The folder contains trials with other settings.
        CheckpointError: The file is damaged.
        FileError: The file cannot be written.
    """
    path = plan.folder / TASK
    deciding = sorted(each for each in plan.overrides if not each.startswith((*IRRELEVANT, *AT_ONCE)))
    wanted = {"overrides": deciding, "tuning_seed": plan.tuning_seed, "sweeper": plan.sweeper, "rate": plan.rate}
    if not path.exists():
        write_file(path, document(wanted))
        return
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise CheckpointError(f"{path}: damaged; remove {plan.folder} and run the command again") from error
    if differing := [key for key in wanted if found.get(key) != wanted[key]]:
        key = differing[0]
        raise ConfigurationError(
            f"{plan.folder}: contains {what} with other settings, {key} {found.get(key)}, found "
            f"{wanted[key]}; choose another folder with output=DIR, or remove {plan.folder}"
        )
