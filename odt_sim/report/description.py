"""A comparison in words: its settings, its result, and remarks on devices and privacy."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from odt_sim._support.text import counted, few
from odt_sim.metrics.names import higher_is_better, is_percent, title_of
from odt_sim.metrics.rounds import IMPROVEMENT
from odt_sim.metrics.units import significant
from odt_sim.persistence.records import by_reason, is_failure
from odt_sim.persistence.run import Run
from odt_sim.persistence.summary import Summary
from odt_sim.report.comparison import Comparison, Configuration
from odt_sim.report.formatting import Spread, after, difference_unit, distinct, score, signed
from odt_sim.report.paired_description import is_better
from odt_sim.report.provenance import machines, versions


def title(comparison: Comparison) -> str:
    """Return the headline: the numbers of strategies and devices."""
    strategies = list(dict.fromkeys(row.strategy for row in comparison.rows))
    if not strategies:
        return "No complete run"
    subject = strategies[0] if len(strategies) == 1 else f"{len(strategies)} strategies"
    devices = distinct(run.complete.devices for run in comparison.runs)
    return f"{subject} on {devices} device{'' if devices == '1' else 's'}"


def settings(comparison: Comparison) -> dict[str, str]:
    """Return the main settings by name; differing values are listed, and unknown values are left out."""
    runs = comparison.runs
    summaries = [run.complete for run in runs]
    aggregators = distinct(map(_aggregator, runs))
    named = {
        "data": distinct(_group(run, "data") for run in runs),
        "partition": distinct(_group(run, "partition") for run in runs),
        "model": distinct(run.choices.get("model") for run in runs),
        "devices": distinct(summary.devices for summary in summaries),
        "unseen devices": distinct(summary.unseen for summary in summaries),
        "evaluated devices": distinct(summary.evaluated for summary in summaries if _is_sampled(summary)),
        "devices per round": distinct(summary.cohort or "all seen" for summary in summaries),
        "rounds": distinct(summary.rounds for summary in summaries),
        "local epochs": distinct(
            _config(run, "train", "epochs") for run in runs if _config(run, "train", "steps") is None
        ),
        "local steps": distinct(_config(run, "train", "steps") for run in runs),
        "hostile devices": distinct(map(_attack, runs)),
        "aggregator": "" if aggregators == "mean" else aggregators,
        "learning rate": distinct(_config(run, "train", "learning_rate") for run in runs),
        "seeds": distinct(sorted({summary.seed for summary in summaries})),
        "train / test examples": distinct(f"{s.train_examples:,} / {s.examples:,}" for s in summaries),
        "versions": versions(runs),
        "machine": machines(runs),
    }
    return {name: value for name, value in named.items() if value}


def result(comparison: Comparison) -> str:
    """Return which configuration serves the fleet best, by how much, and how its worst-served devices fare."""
    rankings = [ranked for rows in comparison.by_data if (ranked := _ranked(rows, comparison.metric))]
    if not rankings:
        return "There is nothing to compare."
    if len(rankings) > 1:
        return _result_on_each(rankings, comparison)
    ranked = rankings[0]
    best, figure = ranked[0]
    metric = title_of(comparison.metric)
    value = _score(figure.mean, comparison)
    if len(ranked) == 1:
        mean = f"The mean test {metric} of the seen devices, weighted by test examples, is {value}."
        return f"{mean} {_worst(best, comparison)}"
    superlative = "highest" if higher_is_better(comparison.metric) else "lowest"
    return (
        f"{best.label} has the {superlative} mean test {metric} of the seen devices ({value}, weighted by test examples), "
        f"{_runner_up(best, figure, *ranked[1], comparison)}. {_worst(best, comparison)}"
    )


def on_each_data(comparison: Comparison) -> str:
    """Return that the best of a column is one on each data; empty where all rows are on the same."""
    return " for each data set, partition and fleet" if len(comparison.by_data) > 1 else ""


def failures(comparison: Comparison) -> list[tuple[str, str]]:
    """Return the failed runs with their errors; runs with the same error, such as a missing data file, are merged."""
    labels: dict[str, list[str]] = {}
    for failure in comparison.failures:
        labels.setdefault(failure.error, []).append(failure.label)
    return [(few(named), error) for error, named in labels.items()]


def excluded(comparison: Comparison) -> str | None:
    """Return how many updates were left out, with reasons and devices; None if all were used."""
    listed = ", ".join(text for row in comparison.rows if (text := _excluded(row)))
    return f"Excluded updates: {listed}." if listed else None


def hostile(comparison: Comparison) -> str | None:
    """Return how many devices attack and how, and that no figure includes them; None if no device attacks."""
    attacks = distinct(map(_attack, comparison.runs))
    return f"Hostile devices, excluded from all metrics: {attacks}." if attacks else None


def not_evaluated(comparison: Comparison) -> str | None:
    """Return which devices were not evaluated, and why; None if all were."""
    listed = ", ".join(text for row in comparison.rows if (text := _not_evaluated(row)))
    return f"Not evaluated, and excluded from all means: {listed}." if listed else None


def other_seeds(comparison: Comparison) -> str | None:
    """Return which configurations on the same data have different seeds, with the seeds; None if all are the same."""
    groups = [_labels_by_seeds(rows) for rows in comparison.by_data]
    listed = "; ".join(
        f"{seeds} ({few(labels)})" for group in groups if len(group) > 1 for seeds, labels in group.items()
    )
    if not listed:
        return None
    return (
        f"Different seeds: {listed}. Means over different seeds also differ in devices and initial weights. Use the paired "
        "differences, which cover common seeds only, or run the missing seeds."
    )


def undefined(comparison: Comparison) -> str | None:
    """Return on how many seen devices the metric is undefined, so that its means leave them out; None without any."""
    listed = _undefined_by_row(comparison, comparison.metric)
    if not listed:
        return None
    return f"Seen devices with undefined test {title_of(comparison.metric)}, excluded from its means: {listed}."


def undefined_others(comparison: Comparison) -> str | None:
    """Return on how many seen devices each further metric is undefined; None if all are defined on all devices."""
    counts = {metric: _undefined_by_row(comparison, metric) for metric in comparison.metrics[1:]}
    listed = "; ".join(f"{title_of(metric)}: {rows}" for metric, rows in counts.items() if rows)
    if not listed:
        return None
    return f"Seen devices with an undefined test metric, excluded from its means: {listed}."


def never_trained(comparison: Comparison) -> str | None:
    """Return how many seen devices had not trained by the reported round, and so trained at deployment, or None."""
    counts = {row.label: _untrained(row) for row in comparison.rows}
    listed = ", ".join(f"{label} {count}" for label, count in counts.items() if count)
    if not listed:
        return None
    return f"Seen devices that had not trained by the reported round, and trained for unseen_epochs at deployment: {listed}."


def improving(comparison: Comparison) -> str | None:
    """Return which configurations were still improving when they ended; None if none was."""
    listed = ", ".join(row.label for row in comparison.rows if row.improving)
    if not listed:
        return None
    return (
        f"Still improving at the end: {listed}. In at least half of the runs, the best validation mean in the last quarter "
        f"of the evaluations is more than {100 * IMPROVEMENT:g} % better than the best one before. With more rounds "
        "(run.rounds, or run.until=plateau) the ranking may change."
    )


def pruned(comparison: Comparison) -> str | None:
    """Return which configurations a search's pruner ended, and after how many rounds; None if it ended none."""
    listed = ", ".join(f"{row.label} ({after(row.pruned)})" for row in comparison.rows if row.pruned)
    if not listed:
        return None
    return (
        f"Pruned by the search: {listed}; excluded from best values, paired differences, equal budgets and the Pareto front, "
        "and never marked as still improving."
    )


def privacy(comparison: Comparison) -> str | None:
    """Return the privacy promises of the runs; None without any."""
    promises = {
        row.label: distinct(f"epsilon {_epsilon(promise)} at delta {promise['delta']:g}" for promise in known)
        for row in comparison.rows
        if (known := [run.complete.privacy for run in row.runs if run.complete.privacy])
    }
    if not promises:
        return None
    listed = "; ".join(f"{label}, {text}" for label, text in promises.items())
    relations = distinct(run.complete.privacy.get("neighbours") for run in comparison.runs if run.complete.privacy)
    meaning = f" (one device is one user; adjacency: {relations})" if relations else ""
    return f"User-level differential privacy of the server's models{meaning}: {listed}."


def hurt_by_one(comparison: Comparison) -> str | None:
    """Return how many hurt devices (versus local) differ by one test example only; None if unknown or if none is hurt."""
    known = [(row.label, hurt) for row in comparison.rows if (hurt := row.hurt["hurt_local"])]
    listed = ", ".join(f"{label} {hurt.by_one} of {hurt.hurt}" for label, hurt in known if hurt.one_example)
    return f"Hurt vs local by at most one test example: {listed}." if listed else None


def optimism(comparison: Comparison) -> str | None:
    """Return what validation examples chose, and by how much validation and test figures differ; None if unknown."""
    known = [figure.mean for row in comparison.rows if (figure := row.values["optimism"])]
    if not known:
        return None
    differ = [signed(value, comparison.metric) for value in (min(known), max(known))]
    extent = differ[0] if differ[0] == differ[1] else f"{differ[0]} to {differ[1]}"
    return (
        f"Validation examples determine {_chosen(comparison)}, so validation metrics are optimistic. Validation minus test: "
        f"{extent} {difference_unit(comparison.metric)}."
    )


def unseen_train(comparison: Comparison, cost: str = "training steps") -> str:
    """Return that a cost of local training includes unseen devices; empty without any."""
    if not any(run.name == "local" and run.complete.unseen for run in comparison.runs):
        return ""
    return f" Under local, unseen devices also train in every round; their {cost} are included."


def reported(comparison: Comparison) -> str:
    """Return how the runs chose the reported round."""
    chosen_by = next((run.chosen_by for run in comparison.runs), comparison.metric)
    if not _validated(comparison, rounds=1):
        return f"The reported round is the last one, since no round has a validation {title_of(chosen_by)}."
    best = "validation mean" if chosen_by == comparison.metric else f"mean validation {title_of(chosen_by)}"
    return f"The reported round is the one with the best {best}."


def _validated(comparison: Comparison, *, rounds: int) -> bool:
    """Return whether a run has figures on validation examples for at least `rounds` rounds."""
    return any(
        sum(record.get(f"validation_{run.chosen_by}") is not None for record in run.rounds) >= rounds
        for run in comparison.runs
    )


def _chosen(comparison: Comparison) -> str:
    """Return what was chosen on validation examples, as far as the records show."""
    arriving = any(run.complete.get("over_time") for run in comparison.runs)
    chosen = ["the reported round"] if _validated(comparison, rounds=2) and not arriving else []
    chosen += ["the configuration"] if any(row.selection.candidates > 1 for row in comparison.rows) else []
    adapted = "how strategies adapt to a device"
    return f"{', '.join(chosen)} and {adapted}" if chosen else adapted


def adaptation_steps(comparison: Comparison) -> str:
    """Return the number of local steps behind the adapted figures of unseen devices; empty if unknown."""
    return distinct(_config(run, "fleet", "adaptation_steps") for run in comparison.runs)


def _excluded(row: Configuration) -> str | None:
    summaries = [run.complete for run in row.runs]
    count = sum(summary.excluded for summary in summaries)
    reasons = Counter[str]()
    for summary in summaries:
        reasons.update(dict(summary.excluded_reasons))
    records = [record for run in row.runs for record in run.rounds]
    devices = by_reason(pair for record in records for pair in record.excluded_reasons.items())
    listed = "; ".join(
        f"{reason}: {times}{f' of {devices[reason]}' if reason in devices else ''}" for reason, times in reasons.items()
    )
    quarantined = sum(len(summary.quarantined) for summary in summaries)
    suffix = f", {counted(quarantined, 'device')} quarantined" if quarantined else ""
    return f"{count} of {row.label}{f' ({listed})' if listed else ''}{suffix}" if count else None


def _not_evaluated(row: Configuration) -> str | None:
    records = [record for run in row.runs for record in run.devices]
    missing = [record for record in records if is_failure(record.not_evaluated)]
    devices = by_reason((record.device, str(record.not_evaluated)) for record in missing)
    listed = "; ".join(f"{reason}: {named}" for reason, named in devices.items())
    return f"{row.label} ({listed})" if listed else None


def _labels_by_seeds(rows: Iterable[Configuration]) -> dict[str, list[str]]:
    labels: dict[str, list[str]] = {}
    for row in rows:
        labels.setdefault(distinct(sorted(run.complete.seed for run in row.runs)), []).append(row.label)
    return labels


def _undefined_by_row(comparison: Comparison, metric: str) -> str:
    return ", ".join(f"{row.label} {count}" for row in comparison.rows if (count := _undefined(row, metric)))


def _undefined(row: Configuration, metric: str) -> str | None:
    runs = [run for run in row.runs if metric in run.metrics]
    seen = [record for run in runs for record in run.devices if record.seen and not record.not_evaluated]
    count = sum(bool(record.examples) and record.get(metric) is None for record in seen)
    return f"{count} of {len(seen)}" if count else None


def _untrained(row: Configuration) -> str | None:
    """Return how many seen devices trained at deployment, for strategies that do so only for devices without training."""
    runs = [run for run in row.runs if "strategy.unseen_epochs" in (run.settings or {})]
    seen = [record for run in runs for record in run.devices if record.seen]
    count = sum(bool(record.deploy_train_calls) for record in seen)
    return f"{count} of {len(seen)}" if count else None


def _ranked(rows: Iterable[Configuration], metric: str) -> list[tuple[Configuration, Spread]]:
    """Return the configurations by test figure; of a strategy's several only the selected one."""
    candidates = [row for row in rows if row.selection.label in (None, row.label)]
    known = [(row, figure) for row in candidates if (figure := row.values["weighted_mean"])]
    return sorted(known, key=lambda pair: pair[1].mean, reverse=higher_is_better(metric))


def _result_on_each(rankings: Iterable[Sequence[tuple[Configuration, Spread]]], comparison: Comparison) -> str:
    superlative = "Highest" if higher_is_better(comparison.metric) else "Lowest"
    listed = []
    for (best, figure), *others in rankings:
        after = f", {_runner_up(best, figure, *others[0], comparison)}" if others else ""
        listed.append(f"{best.label} with {_score(figure.mean, comparison)}{after}.")
    return (
        f"{superlative} mean test {title_of(comparison.metric)} of the seen devices, weighted by test examples,"
        f"{on_each_data(comparison)}: {' '.join(listed)}"
    )


def _runner_up(
    best: Configuration, first: Spread, second: Configuration, figure: Spread, comparison: Comparison
) -> str:
    doubt, tested = "", is_better(comparison, best.label, second.label)
    if tested is False:
        doubt = " (not significantly, by the paired test)"
    elif tested is None and first.std is not None and figure.std is not None:
        near = abs(first.mean - figure.mean) <= max(first.std, figure.std)
        doubt = " (within one standard deviation over seeds)" if near else ""
    return f"followed by {second.label} with {_score(figure.mean, comparison)}{doubt}"


def _worst(row: Configuration, comparison: Comparison) -> str:
    worst, hurt = row.values["worst"], row.values["hurt_local"]
    if worst is None:
        return ""
    sentence = f"The worst-served device under {row.label} has {_score(worst.mean, comparison)}"
    if hurt is None:
        return f"{sentence}."
    share = f"{100 * hurt.mean:.1f}\N{NO-BREAK SPACE}%" if hurt.mean else "none"
    return f"{sentence}, and {share} of the devices would be better off training alone."


def _score(value: float, comparison: Comparison) -> str:
    return score(value, comparison.metric) + ("\N{NO-BREAK SPACE}%" if is_percent(comparison.metric) else "")


def _epsilon(promise: Mapping[str, Any]) -> str:
    return "infinite" if promise["epsilon"] is None else significant(promise["epsilon"])


def _is_sampled(summary: Summary) -> bool:
    return summary.evaluated not in (None, summary.devices)


def _group(run: Run, group: str) -> str | None:
    """Return the chosen option of a Hydra group with its parameters, such as `dirichlet (alpha 0.3)`."""
    options = run.config.get(group)
    items = options.items() if isinstance(options, Mapping) else ()
    shown = [
        f"{key} {value}" for key, value in items if not key.startswith("_") and isinstance(value, str | int | float)
    ]
    name = run.choices.get(group)
    return " ".join([name, *([f"({', '.join(shown)})"] if shown else [])]) if name else None


def _aggregator(run: Run) -> str | None:
    """Return the aggregator with its settings, such as `krum (hostile 0.2, selected 1)`; None if unknown."""
    recorded = run.settings or {}
    own = [f"{key.removeprefix('aggregator.')} {recorded[key]}" for key in recorded if key.startswith("aggregator.")]
    name = recorded.get("aggregator")
    return f"{name} ({', '.join(own)})" if name and own else name


def _attack(run: Run) -> str | None:
    """Return the number of hostile devices and the attack, such as `4 (label_poisoning, factor 1.0)`; None if zero."""
    recorded = run.settings or {}
    if not (ids := recorded.get("fleet.hostile")):
        return None
    own = [f"{key.removeprefix('attack.')} {recorded[key]}" for key in recorded if key.startswith("attack.")]
    return f"{ids.count(',') + 1} ({', '.join([recorded['attack'], *own])})"


def _config(run: Run, group: str, name: str) -> Any:
    options = run.config.get(group)
    return options.get(name) if isinstance(options, Mapping) else None
