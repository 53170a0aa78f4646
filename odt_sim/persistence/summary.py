"""One run in one JSON object: what stands in `summary.json`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from odt_sim.metrics.fleet import TASK_METRICS, Row, fleet_figures, fraction_hurt, gains, measured_as, split_seen
from odt_sim.metrics.rounds import rounds_to_target


def summarize(
    rounds: Sequence[Row],
    devices: Sequence[Row],
    *,
    strategy: str,
    seed: int,
    task: str,
    cohort: int | None,
    fleet: tuple[int, int] | None = None,
    reported_round: int | None = None,
    target: float | None = None,
    settings: Mapping[str, str] | None = None,
    privacy: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns the content of `summary.json`.

    Args:
        rounds: The lines of `rounds.jsonl`.
        devices: The lines of `devices.jsonl`.
        strategy: The strategy's name.
        seed: The run's seed.
        task: A key of `TASK_METRICS`: `classification` or `regression`.
        cohort: How many devices take part in a round; None is all that are seen.
        fleet: How many devices there are, and how many of them took no part in training, where only some were evaluated;
            None where `devices` are all.
        reported_round: The round after which the devices were evaluated; None for the last one.
        target: A value of the task's first metric to reach, or None.
        settings: All that decides the result but the seed, by dotted name; those of the strategy itself are named
            `strategy` and `strategy.*`. By it runs are told apart, and joined with their local-only run.
        privacy: What the aggregator promises users, as `Aggregator.privacy` returns it; None for nothing.

    Returns:
        | key | value |
        |---|---|
        | `strategy`, `seed`, `task`, `cohort`, `target`, `settings`, `privacy` | as given |
        | `rounds` | how many rounds were run |
        | `reported_round` | the round whose models all figures of devices are of |
        | `devices`, `unseen` | devices of the fleet, and how many of them took no part in training |
        | `evaluated` | how many of them were evaluated: all below is of these |
        | `train_examples`, `examples` | of their train and test splits |
        | `metrics` | for each metric, the `FleetFigures` over the seen devices, or null |
        | `metrics_train` | the same on the devices' training examples, weighted by these |
        | `metrics_validation` | the same on their validation examples, weighted by these: to choose settings by |
        | `metrics_others` | the same on test examples of other devices: what a personal model has forgotten |
        | `metrics_unseen` | as `metrics`, over the unseen devices |
        | `metrics_unseen_adapted` | the same after `fleet.adaptation_steps` more local steps |
        | `fraction_hurt_global`, `fraction_hurt_local` | of the seen devices, by the task's first metric, or null |
        | `rounds_to_target` | the first evaluated round whose weighted mean over seen devices reaches it, or null |
        | `excluded` | updates left out, over all rounds |
        | `excluded_reasons` | each reason and how many of them it left out, the most frequent first |
        | `quarantined` | the ids of the devices that later rounds went without, since they had failed in round after round |
        | `bytes_down`, `bytes_up`, `train_calls`, `infer_calls`, `seconds` | sums over all rounds |
        | `deploy_train_calls`, `deploy_infer_calls` | sums over devices, of what is done where the model is deployed |
        | `state_bytes` | what a device keeps from round to round, mean over devices |
    """
    seen, unseen = split_seen(devices)
    return {
        "strategy": strategy,
        "seed": seed,
        "task": task,
        "rounds": len(rounds),
        "reported_round": len(rounds) if reported_round is None else reported_round,
        "devices": len(devices) if fleet is None else fleet[0],
        "cohort": cohort,
        "unseen": len(unseen) if fleet is None else fleet[1],
        "evaluated": len(devices),
        "train_examples": _total(devices, "train_examples"),
        "examples": _total(devices, "examples"),
        "metrics": _figures(seen, task),
        "metrics_train": _figures(seen, task, "train", "train_examples"),
        "metrics_validation": _figures(seen, task, "validation", "validation_examples"),
        "metrics_others": _figures(seen, task, "others"),
        "metrics_unseen": _figures(unseen, task),
        "metrics_unseen_adapted": _figures(unseen, task, "adapted"),
        "fraction_hurt_global": _fraction_hurt(seen, task, "global"),
        "fraction_hurt_local": _fraction_hurt(seen, task, "local"),
        "target": target,
        "rounds_to_target": None if target is None else rounds_to_target(rounds, TASK_METRICS[task][0], target),
        "excluded": _total(rounds, "excluded"),
        "excluded_reasons": _reasons(rounds),
        "quarantined": [device for row in rounds for device in row.get("newly_quarantined", ())],
        "bytes_down": _total(rounds, "bytes_down"),
        "bytes_up": _total(rounds, "bytes_up"),
        "train_calls": _known_total(rounds, "train_calls"),
        "infer_calls": _known_total(rounds, "infer_calls"),
        "deploy_train_calls": _known_total(devices, "deploy_train_calls"),
        "deploy_infer_calls": _known_total(devices, "deploy_infer_calls"),
        "state_bytes": _known_total(devices, "state_bytes", mean=True),
        "seconds": _total(rounds, "seconds"),
        "settings": None if settings is None else dict(settings),
        "privacy": None if privacy is None else dict(privacy),
    }


def _figures(
    rows: Sequence[Row], task: str, prefix: str | None = None, examples: str = "examples"
) -> Mapping[str, Any]:
    if prefix is not None:
        rows = [measured_as(row, prefix, task, examples) for row in rows]
    figures = {metric: fleet_figures(rows, metric) for metric in TASK_METRICS[task]}
    return {metric: asdict(found) if found else None for metric, found in figures.items()}


def _fraction_hurt(rows: Sequence[Row], task: str, reference: str) -> float | None:
    metric = TASK_METRICS[task][0]
    return fraction_hurt(gains(rows, metric, f"{reference}_{metric}"))


def _total(rows: Sequence[Row], name: str) -> Any:
    return sum(row[name] for row in rows)


def _reasons(rounds: Sequence[Row]) -> list[tuple[str, int]]:
    return Counter(why for row in rounds for why in row.get("excluded_reasons", {}).values()).most_common()


def _known_total(rows: Sequence[Row], name: str, *, mean: bool = False) -> float | None:
    """Returns the sum or the mean of a column; None where no row has it, as in records that were made before it was."""
    known: list[float] = [row[name] for row in rows if row.get(name) is not None]
    if not known:
        return None
    return sum(known) / len(known) if mean else sum(known)
