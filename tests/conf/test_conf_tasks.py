"""Smaller versions of the experiments with tasks other than one label per example; three run on Ray."""

import math
from typing import Any

import pytest
from runs import Run

from experiments import EXPORTED
from odt_sim import TrainableModel
from odt_sim.cli.commands.run import launch

STRATEGIES = ["local", "fedavg", "fedavg_finetune", "fedper"]
SMALL = ["run.rounds=2", "fleet.unseen=1"]
TASKS: dict[str, tuple[list[str], str, tuple[str, ...]]] = {  # overrides, task, metrics
    "segmentation": (["data.users=5", "data.examples=10"], "segmentation", ("iou", "loss", "accuracy")),
    "tagging": (["data.users=5", "data.examples=10"], "classification",
                ("accuracy", "loss", "balanced_accuracy", "auc", "perplexity")),
    "language": (["data.users=5", "data.examples=10"], "classification",
                 ("accuracy", "loss", "balanced_accuracy", "auc", "perplexity")),
    "recommendation": ([], "ranking", ("ndcg_at_10", "loss", "hit_rate_at_10", "auc")),
    "transcription": (["data.users=5", "data.examples=10"], "transcription", ("token_error_rate", "loss", "exact_match")),
    "multi_label": (["data.users=5"], "multi_label", ("micro_f1", "loss", "macro_f1", "exact_match", "accuracy", "auc")),
    "multi_target": (["data.users=5", "data.examples=10"], "regression", ("mse", "mae", "loss", "r2", "mae_0", "mae_1")),
}  # fmt: skip


def sweep(name: str, *more: str) -> list[Run]:
    outcome = launch([f"+experiment={name}", *SMALL, *EXPORTED[name], *TASKS[name][0], *more])
    assert outcome.failed == 0
    runs = [Run(outcome.folder / str(job)) for job in range(len(STRATEGIES))]
    assert [run.summary["strategy"] for run in runs] == STRATEGIES
    return runs


ON_RAY = ("tagging", "recommendation", "multi_target")  # masks, several inputs, several targets


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("multi_target", "serial"),
        *(pytest.param(name, "ray" if name in ON_RAY else "serial", marks=pytest.mark.slow) for name in TASKS),
    ],
)
def test_task_is_simulated_and_judged_by_its_own_metrics(name: str, backend: str) -> None:
    _, task, metrics = TASKS[name]
    for run in sweep(name, f"backend={backend}"):
        assert run.summary["task"] == task
        found = run.summary["metrics"]
        assert tuple(found)[: len(metrics)] == metrics
        assert all(figures is None or math.isfinite(figures["weighted_mean"]) for figures in found.values())
        assert found[metrics[0]]["devices"] == run.summary["devices"] - 1
        last = run.records.rounds()[-1]
        assert {metrics[0], f"{metrics[0]}_unseen", f"validation_{metrics[0]}", "train_loss"} <= set(last)


@pytest.mark.slow
def test_ensemble_of_one_model_has_the_figures_of_the_model_under_a_mask() -> None:
    found = []
    for strategy in (["strategy=fedavg"], ["strategy=fedem", "strategy.components=1"]):
        given = [*SMALL, *EXPORTED["tagging"], *TASKS["tagging"][0], *strategy, "backend=serial"]
        made = launch(["+experiment=tagging", *given, "hydra.mode=RUN"])
        found.append(Run(made.folder).summary["metrics"])
    for metric, figures in found[0].items():
        assert found[1][metric] == pytest.approx(figures, rel=1e-4)


@pytest.mark.slow
def test_masked_positions_do_not_count_in_a_run() -> None:
    """Different labels in the padding change no result and no weight."""
    figures = []
    for label in (0, 1):
        given = ["data=function", "data.target=padded_labels.examples", f"+data.label={label}", *MODEL]
        made = launch(["+experiment=tagging", *given, *SMALL, "strategy=fedavg", "backend=serial", "hydra.mode=RUN"])
        run = Run(made.folder)
        figures.append((run.summary["metrics"], TrainableModel.load(run.folder / "model.tflite").content))
    assert figures[0] == figures[1]


MODEL = [override for override in EXPORTED["tagging"] if override.startswith("model.")]
EXAMPLES = """
import numpy as np
from odt_sim.data.dataset import Dataset
from odt_sim.conf.demo_data import tagged_sentences

def examples(label):
    data = tagged_sentences(4, 9, length=5)
    return Dataset("padded", data.x, np.where(data.x > 0, data.y, label), data.users, 4)
"""


@pytest.fixture(autouse=True)
def with_padded_labels(folder: Any) -> None:
    (folder / "padded_labels.py").write_text(EXAMPLES)
