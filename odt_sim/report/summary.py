"""One run in one JSON object: what stands in `summary.json`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from odt_sim.metrics.fleet import TASK_METRICS, Row, fleet_figures, fraction_hurt, gains, on_part, split_seen


def summarize(
    rounds: Sequence[Row],
    devices: Sequence[Row],
    *,
    strategy: str,
    seed: int,
    task: str,
    cohort: int | None,
    reported_round: int | None = None,
    settings: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Returns the content of `summary.json`.

    Args:
        rounds: The lines of `rounds.jsonl`.
        devices: The lines of `devices.jsonl`.
        strategy: The strategy's name.
        seed: The run's seed.
        task: A key of `TASK_METRICS`: `classification` or `regression`.
        cohort: How many devices take part in a round; None is all that are seen.
        reported_round: The round after which the devices were evaluated; None for the last one.
        settings: All that decides the result but the seed, by dotted name; those of the strategy itself are named
            `strategy` and `strategy.*`. By it runs are told apart, and joined with their local-only run.

    Returns:
        | key | value |
        |---|---|
        | `strategy`, `seed`, `task`, `cohort`, `settings` | as given |
        | `rounds` | how many rounds were run |
        | `reported_round` | the round whose models all figures of devices are of |
        | `devices`, `unseen` | devices of the fleet, and how many of them took no part in training |
        | `train_examples`, `examples` | of all devices' train and test splits |
        | `metrics` | for each metric, the `FleetFigures` over the seen devices, or null |
        | `metrics_unseen` | the same over the unseen devices |
        | `metrics_validation` | the same over the seen devices, on their validation examples: to choose settings by |
        | `fraction_hurt_global`, `fraction_hurt_local` | of the seen devices, by the task's first metric, or null |
        | `excluded` | updates left out, over all rounds, since loss or weights were not finite |
        | `bytes_down`, `bytes_up`, `seconds` | sums over all rounds |
    """
    seen, unseen = split_seen(devices)
    return {
        "strategy": strategy,
        "seed": seed,
        "task": task,
        "rounds": len(rounds),
        "reported_round": len(rounds) if reported_round is None else reported_round,
        "devices": len(devices),
        "cohort": cohort,
        "unseen": len(unseen),
        "train_examples": _total(devices, "train_examples"),
        "examples": _total(devices, "examples"),
        "metrics": _figures(seen, task),
        "metrics_unseen": _figures(unseen, task),
        "metrics_validation": _figures([on_part(row, "validation", task) for row in seen], task),
        "fraction_hurt_global": _fraction_hurt(seen, task, "global"),
        "fraction_hurt_local": _fraction_hurt(seen, task, "local"),
        "excluded": _total(rounds, "excluded"),
        "bytes_down": _total(rounds, "bytes_down"),
        "bytes_up": _total(rounds, "bytes_up"),
        "seconds": _total(rounds, "seconds"),
        "settings": None if settings is None else dict(settings),
    }


def _figures(rows: Sequence[Row], task: str) -> Mapping[str, Any]:
    figures = {metric: fleet_figures(rows, metric) for metric in TASK_METRICS[task]}
    return {metric: asdict(found) if found else None for metric, found in figures.items()}


def _fraction_hurt(rows: Sequence[Row], task: str, reference: str) -> float | None:
    metric = TASK_METRICS[task][0]
    return fraction_hurt(gains(rows, metric, f"{reference}_{metric}"))


def _total(rows: Sequence[Row], name: str) -> Any:
    return sum(row[name] for row in rows)
