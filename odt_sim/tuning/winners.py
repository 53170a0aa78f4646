"""The trials that validate best, one per strategy."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from odt_sim.errors import CheckpointError
from odt_sim.persistence.run_folder import BEST, FAILURE, SUMMARY
from odt_sim.tuning.plan import Plan


@dataclass(frozen=True)
class Winner:
    """Settings that a search has chosen for a strategy.

    Attributes:
        strategy: The name of the strategy.
        trials: The number of trials that ended.
        failed: The number of these trials that failed, for example because they diverged.
        trial: The number of the best trial.
        validation: The best trial's mean over seen devices of the task's first metric on validation examples.
        settings: The settings drawn for the best trial, as overrides without + or ++ before them.
    """

    strategy: str
    trials: int
    failed: int
    trial: int
    validation: float
    settings: Sequence[str]


def winner(strategy: str, folder: Path) -> Winner | None:
    """Return the winner of a search; None if no trial has a validation metric.

    Raises:
        CheckpointError: The file of the best trial is damaged.
    """
    path = folder / BEST
    if not path.exists():
        return None
    try:
        best = json.loads(path.read_bytes())
        done, failed = ended_trials(folder)
        settings = [each.lstrip("+") for each in best["overrides"]]
        return Winner(strategy, done + failed, failed, best["trial"], best["validation"], settings)
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{path}: damaged; remove {folder} and tune again") from error


def ended_trials(folder: Path) -> tuple[int, int]:
    """Return the numbers of a search's trials that completed and that failed."""
    done, failed = (len(list(folder.glob(f"*/{name}"))) for name in (SUMMARY, FAILURE))
    return done, failed


def choice_of(plan: Plan, winners: Sequence[Winner]) -> dict[str, Any]:
    """Return the content of `tuning.json`: the search spaces and the winners."""
    return {
        "budget": plan.budget,
        "tuning_seed": plan.tuning_seed,
        "seeds": list(plan.seeds),
        "overrides": list(plan.overrides),
        "searched": {strategy: dict(plan.searched(strategy)) for strategy in plan.strategies},
        "winners": [asdict(each) for each in winners],
    }
