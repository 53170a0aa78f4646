"""A folder of trials keeps its original settings."""

from dataclasses import replace
from pathlib import Path

import pytest

from odt_sim.errors import CheckpointError, ConfigurationError
from odt_sim.persistence.run_folder import TASK
from odt_sim.tuning.plan import Plan, claim


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return Plan(
        strategies=["fedavg"], budget=2, seeds=[0], tuning_seed=1000, overrides=["run.rounds=2", "backend=serial"],
        rate=0.1, folder=tmp_path / "out",
    )  # fmt: skip


def test_other_strategies_seeds_budgets_and_backends_continue(plan: Plan) -> None:
    claim(plan, "a tuning")
    other = ["backend=processes", "run.rounds=2", "hydra.sweeper.n_jobs=2"]
    claim(replace(plan, strategies=["local"], budget=9, seeds=[1], overrides=other), "a tuning")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"overrides": ["run.rounds=4"]}, r"overrides \['run.rounds=2'\], found \['run.rounds=4'\]"),
        ({"tuning_seed": 7}, r"tuning_seed 1000, found 7"),
    ],
)
def test_other_settings_are_refused(plan: Plan, change: dict[str, object], found: str) -> None:
    claim(plan, "a tuning")
    with pytest.raises(
        ConfigurationError,
        match=rf"out: contains a tuning with other settings, {found}; choose another folder with output=DIR, or remove",
    ):
        claim(replace(plan, **change), "a tuning")


def test_damaged_file_is_refused(plan: Plan) -> None:
    plan.folder.mkdir()
    (plan.folder / TASK).write_text("{")
    with pytest.raises(CheckpointError, match=r"task.json: damaged; remove "):
        claim(plan, "a tuning")
