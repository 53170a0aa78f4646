"""Remarks on a comparison, in words: what its figures leave out, and by what they are limited."""

from collections import Counter
from collections.abc import Iterable

from odt_sim._support.text import counted, few
from odt_sim.metrics.names import title_of
from odt_sim.metrics.rounds import IMPROVEMENT
from odt_sim.metrics.units import significant
from odt_sim.persistence.records import by_reason, is_failure
from odt_sim.report.comparison import Comparison, Configuration
from odt_sim.report.formatting import after, attack_of, difference_unit, distinct, signed


def notes(comparison: Comparison) -> list[str]:
    """Return the remarks on a comparison that apply to it, without those on updates and on single columns."""
    remarks = (
        other_seeds(comparison),
        improving(comparison),
        pruned(comparison),
        hostile(comparison),
        not_evaluated(comparison),
        undefined(comparison),
        privacy(comparison),
    )
    return [note for note in remarks if note]


def _note(sentence: str, listed: Iterable[str | None], separator: str = ", ") -> str | None:
    """Return a sentence with a list in place of `{}`; None if nothing is listed."""
    items = separator.join(filter(None, listed))
    return sentence.format(items) if items else None


def failures(comparison: Comparison) -> list[tuple[str, str]]:
    """Return the failed runs with their errors; runs with the same error, such as a missing data file, are merged."""
    labels: dict[str, list[str]] = {}
    for failure in comparison.failures:
        labels.setdefault(failure.error, []).append(failure.label)
    return [(few(named), error) for error, named in labels.items()]


def other_seeds(comparison: Comparison) -> str | None:
    """Return which configurations on the same data have different seeds, with the seeds; None if all are the same."""
    groups = [_labels_by_seeds(rows) for rows in comparison.by_data]
    listed = [f"{seeds} ({few(labels)})" for group in groups if len(group) > 1 for seeds, labels in group.items()]
    return _note(
        "Different seeds: {}. Means over different seeds also differ in devices and initial weights. Use the paired "
        "differences, which cover common seeds only, or run the missing seeds.",
        listed,
        "; ",
    )


def _labels_by_seeds(rows: Iterable[Configuration]) -> dict[str, list[str]]:
    labels: dict[str, list[str]] = {}
    for row in rows:
        labels.setdefault(distinct(sorted(run.complete.seed for run in row.runs)), []).append(row.label)
    return labels


def improving(comparison: Comparison) -> str | None:
    """Return which configurations were still improving when they ended; None if none was."""
    return _note(
        "Still improving at the end: {}. In at least half of the runs, the best validation mean in the last quarter of the "
        f"evaluations is more than {100 * IMPROVEMENT:g} % better than the best one before. With more rounds (run.rounds, "
        "or run.until=plateau) the ranking may change.",
        (row.label for row in comparison.rows if row.improving),
    )


def pruned(comparison: Comparison) -> str | None:
    """Return which configurations a search's pruner ended, and after how many rounds; None if it ended none."""
    return _note(
        "Pruned by the search: {}; excluded from best values, paired differences, equal budgets and the Pareto front, and "
        "never marked as still improving.",
        (f"{row.label} ({after(row.pruned)})" for row in comparison.rows if row.pruned),
    )


def excluded(comparison: Comparison) -> list[str]:
    """Return how many updates were left out, with reasons and devices, in a sentence; empty if all were used."""
    sentence = _note("Excluded updates: {}.", map(_excluded, comparison.rows))
    return [sentence] if sentence else []


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


def hostile(comparison: Comparison) -> str | None:
    """Return how many devices attack and how, and that no figure includes them; None if no device attacks."""
    return _note("Hostile devices, excluded from all metrics: {}.", [distinct(map(attack_of, comparison.runs))])


def not_evaluated(comparison: Comparison) -> str | None:
    """Return which devices were not evaluated, and why; None if all were."""
    return _note("Not evaluated, and excluded from all means: {}.", map(_not_evaluated, comparison.rows))


def _not_evaluated(row: Configuration) -> str | None:
    records = [record for run in row.runs for record in run.devices]
    missing = [record for record in records if is_failure(record.not_evaluated)]
    devices = by_reason((record.device, str(record.not_evaluated)) for record in missing)
    listed = "; ".join(f"{reason}: {named}" for reason, named in devices.items())
    return f"{row.label} ({listed})" if listed else None


def undefined(comparison: Comparison) -> str | None:
    """Return on how many seen devices each metric is undefined; None if all are defined on all devices."""
    counts = {metric: _undefined(comparison, metric) for metric in comparison.metrics}
    return _note(
        "Seen devices with an undefined test metric, excluded from its means: {}.",
        (f"{title_of(metric)}: {rows}" for metric, rows in counts.items() if rows),
        "; ",
    )


def _undefined(comparison: Comparison, metric: str) -> str:
    """Return by configuration on how many seen devices a metric is undefined."""
    listed = []
    for row in comparison.rows:
        runs = [run for run in row.runs if metric in run.metrics]
        seen = [record for run in runs for record in run.devices if record.seen and not record.not_evaluated]
        count = sum(bool(record.examples) and record.get(metric) is None for record in seen)
        listed += [f"{row.label} {count} of {len(seen)}"] if count else []
    return ", ".join(listed)


def privacy(comparison: Comparison) -> str | None:
    """Return the privacy promises of the runs; None without any."""
    recorded = [
        (row.label, run.complete.privacy) for row in comparison.rows for run in row.runs if run.complete.privacy
    ]
    promises: dict[str, list[str]] = {}
    for label, promise in recorded:
        epsilon = "infinite" if promise["epsilon"] is None else significant(promise["epsilon"])
        promises.setdefault(label, []).append(f"epsilon {epsilon} at delta {promise['delta']:g}")
    relations = distinct(promise.get("neighbours") for _, promise in recorded)
    meaning = f" (one device is one user; adjacency: {relations})" if relations else ""
    return _note(
        f"User-level differential privacy of the server's models{meaning}: {{}}.",
        (f"{label}, {distinct(texts)}" for label, texts in promises.items()),
        "; ",
    )


def optimism(comparison: Comparison) -> str | None:
    """Return what validation examples chose, and by how much validation and test figures differ; None if unknown."""
    differences = [figure.mean for row in comparison.rows if (figure := row.values["optimism"])]
    if not differences:
        return None
    extremes = [signed(value, comparison.metric) for value in (min(differences), max(differences))]
    return (
        f"Validation examples determine {_chosen(comparison)}, so validation metrics are optimistic. Validation minus test: "
        f"{' to '.join(dict.fromkeys(extremes))} {difference_unit(comparison.metric)}."
    )


def _chosen(comparison: Comparison) -> str:
    """Return what was chosen on validation examples, as far as the records show."""
    arriving = any(run.complete.over_time for run in comparison.runs)
    chosen = ["the reported round"] if validated(comparison, rounds=2) and not arriving else []
    chosen += ["the configuration"] if any(row.selection.candidates > 1 for row in comparison.rows) else []
    adapted = "how strategies adapt to a device"
    return f"{', '.join(chosen)} and {adapted}" if chosen else adapted


def validated(comparison: Comparison, *, rounds: int) -> bool:
    """Return whether a run has figures on validation examples for at least `rounds` rounds."""
    return any(
        sum(record.get(f"validation_{run.chosen_by}") is not None for record in run.rounds) >= rounds
        for run in comparison.runs
    )


def reported(comparison: Comparison) -> str:
    """Return how the runs chose the reported round."""
    chosen_by = next((run.chosen_by for run in comparison.runs), comparison.metric)
    if not validated(comparison, rounds=1):
        return f"The reported round is the last one, since no round has a validation {title_of(chosen_by)}."
    best = "validation mean" if chosen_by == comparison.metric else f"mean validation {title_of(chosen_by)}"
    return f"The reported round is the one with the best {best}."
