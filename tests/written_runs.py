"""Write run folders like a simulation, with made-up results."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from odt_sim.metrics.fleet import evaluation_columns
from odt_sim.metrics.names import higher_is_better
from odt_sim.metrics.tasks import TASK_METRICS
from odt_sim.persistence.records import DeviceRecord, RoundRecord
from odt_sim.persistence.run import Run
from odt_sim.persistence.run_folder import RunFolder
from odt_sim.persistence.summary import Summary, summarize

SKILL = {"local": 0.72, "fedavg": 0.80, "fedavg_finetune": 0.88, "fedper": 0.92}
"""Mean accuracy of a strategy's devices."""


BLANK = {
    **{
        "strategy": "fedavg",
        "seed": 0,
        "task": "classification",
        "rounds": 1,
        "devices": 4,
        "cohort": None,
        "unseen": 0,
    },
    **{"train_examples": 0, "examples": 0, "metrics": {}, "metrics_unseen": {}, "excluded": 0, "seconds": 0.0},
    **{"fraction_hurt_global": None, "fraction_hurt_local": None, "bytes_down": 0, "bytes_up": 0},
}
"""A blank summary."""


def round_record(number: int, **columns: Any) -> RoundRecord:
    """Return the record of a round with the required values."""
    costs = {"devices": 3, "train_loss": 0.5, "bytes_down": 8, "bytes_up": 8, "seconds": 0.25}
    return RoundRecord.of({"round": number, "strategy": "fedavg", **costs, **columns})


def complete_run(
    path: str,
    summary: Mapping[str, Any],
    devices: Sequence[Mapping[str, Any]] = (),
    overrides: Sequence[str] = (),
    config: Mapping[str, Any] | None = None,
    choices: Mapping[str, Any] | None = None,
) -> Run:
    """Return a complete run in memory, blank except for the given columns."""
    blank = {"train_examples": 40, "examples": 10}
    rows = tuple(DeviceRecord.of({**blank, **device}) for device in devices)
    whole = Summary.of({**BLANK, **summary})
    return Run(Path(path), (), rows, whole, None, tuple(overrides), config or {}, choices or {})


def write_run(
    path: Path,
    strategy: str = "fedavg",
    seed: int = 0,
    *,
    devices: int = 20,
    unseen: int = 4,
    rounds: int = 10,
    task: str = "classification",
    overrides: Sequence[str] = (),
    hydra: bool = True,
    references: bool = True,
    settings: Mapping[str, str] | None = None,
    stopped: str | None = None,
    pruned: bool | None = None,
) -> Path:
    """Write a run with random results of devices; everything else is computed from them as in a real run."""
    path.mkdir(parents=True)
    folder = RunFolder(path)
    rng = np.random.default_rng([seed, *strategy.encode(), *"".join(overrides).encode()])
    fleet = np.random.default_rng(seed)
    examples = fleet.integers(5, 40, devices)
    hardness = fleet.normal(0, 0.06, devices)
    skill = SKILL.get(strategy, 0.85)
    rows: list[dict[str, Any]] = []
    lines: list[RoundRecord] = []
    for number in range(1, rounds + 1):
        learned = 0.15 + (skill - 0.15) * (1 - np.exp(-number / 3))
        values = learned + hardness + rng.normal(0, 0.04, devices)
        rows = [_device(i, values[i], int(examples[i]), i < devices - unseen, task) for i in range(devices)]
        seen = devices - unseen
        line = {"round": number, "strategy": strategy, "devices": seen, "excluded": int(number == 2)}
        line |= {"train_loss": 2.3 * np.exp(-number / 4), "bytes_down": 40_000 * seen, "bytes_up": 40_000 * seen}
        line |= {"excluded_reasons": {"3": "timed out"} if number == 2 else {}}
        line |= {"seconds": 0.8 + rng.random() / 10}
        lines.append(RoundRecord.of(line | evaluation_columns(rows, TASK_METRICS[task])))
        folder.append_rounds(lines[-1])
    for row, shift in zip(rows, rng.normal(-0.06, 0.06, devices), strict=True):
        for metric in TASK_METRICS[task]:
            known = references and strategy != "local"
            row[f"global_{metric}"] = _worsen(row[metric], shift, metric) if known else None
            row[f"local_{metric}"] = None
        if strategy == "fedavg_finetune":
            row["epochs"] = int(rng.integers(0, 5))
    folder.write_devices(map(DeviceRecord.of, rows))
    summary = summarize(
        lines,
        rows,
        strategy=strategy,
        seed=seed,
        task=task,
        metrics=TASK_METRICS[task],
        cohort=None,
        settings=_recorded(strategy, overrides) if settings is None else settings,
        stopped=stopped,
        pruned=pruned,
    )
    folder.write_summary(summary)
    if hydra:
        write_hydra(path, [f"strategy={strategy}", f"seed={seed}", *overrides], devices, unseen, rounds)
    return path


def write_hydra(path: Path, overrides: Sequence[str], devices: int = 20, unseen: int = 4, rounds: int = 10) -> None:
    """Write Hydra's files of a run."""
    (path / ".hydra").mkdir(parents=True, exist_ok=True)
    settings = dict(override.split("=", 1) for override in overrides)
    choices = {
        "model": "mlp",
        "data": "digits",
        "partition": "dirichlet",
        "strategy": settings.get("strategy", "fedavg"),
    }
    config = {
        "seed": settings.get("seed", 0),
        "run": {"rounds": rounds, "storage": "${hydra:runtime.output_dir}"},
        "fleet": {"devices": devices, "cohort": None, "unseen": unseen},
        "train": {"epochs": 2, "learning_rate": 0.05},
        "partition": {"_target_": "odt_sim.data.devices.partition.dirichlet", "alpha": 0.3},
    }
    merged = OmegaConf.create(config)
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")
        if "." in key:
            OmegaConf.update(merged, key, value)
    OmegaConf.save(merged, path / ".hydra" / "config.yaml")
    OmegaConf.save(OmegaConf.create({"hydra": {"runtime": {"choices": choices}}}), path / ".hydra" / "hydra.yaml")
    OmegaConf.save(OmegaConf.create(list(overrides)), path / ".hydra" / "overrides.yaml")


def _recorded(strategy: str, overrides: Sequence[str]) -> dict[str, str]:
    """Return the settings that a run with some overrides records."""
    pairs = (override.lstrip("+").partition("=") for override in overrides)
    changed = {key: value for key, _, value in pairs if key not in ("strategy", "seed") and not key.startswith("hydra")}
    alpha = changed.pop("partition.alpha", "0.3")
    return {"strategy": strategy, "data": "digits", "partition": f"dirichlet alpha={alpha}", **changed}


def _device(index: int, value: float, examples: int, seen: bool, task: str) -> dict[str, Any]:
    accuracy = float(np.clip(round(value * examples) / examples, 0, 1))
    row: dict[str, Any] = {"device": index, "seen": seen, "train_examples": 4 * examples, "examples": examples}
    error = float(np.exp(-4 * value))
    if task == "classification":
        more = {"balanced_accuracy": accuracy**2, "auc": (1 + accuracy) / 2}
        return row | {"accuracy": accuracy, "loss": 2.3 * (1 - accuracy) + 0.05, **more}
    return row | {"mse": error, "mae": float(np.sqrt(error)), "loss": error, "r2": 1 - error}


def _worsen(value: float, shift: float, metric: str) -> float:
    return float(np.clip(value + shift, 0, 1)) if higher_is_better(metric) else float(value * np.exp(-3 * shift))
