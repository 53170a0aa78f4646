"""A comparison in words: its title, its settings, its result, and its paired differences with how they are tested."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from odt_sim.metrics.names import higher_is_better, is_percent, title_of
from odt_sim.persistence.run import Run
from odt_sim.report.comparison import Comparison, Configuration
from odt_sim.report.formatting import Spread, attack_of, component_of, difference_of, distinct, score
from odt_sim.report.pairing import Paired
from odt_sim.report.provenance import machines, versions
from odt_sim.report.significance import FEWEST, Unit

_LEVEL = 0.05


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
    aggregators = distinct(component_of(run, "aggregator") for run in runs)
    stepped = [config_of(run, "train", "steps") for run in runs]
    epochs = [config_of(run, "train", "epochs") for run in runs]
    named = {
        "data": distinct(_group(run, "data") for run in runs),
        "partition": distinct(_group(run, "partition") for run in runs),
        "model": distinct(run.choices.get("model") for run in runs),
        "devices": distinct(summary.devices for summary in summaries),
        "unseen devices": distinct(summary.unseen for summary in summaries),
        "evaluated devices": distinct(s.evaluated for s in summaries if s.evaluated != s.devices),
        "devices per round": distinct(summary.cohort or "all seen" for summary in summaries),
        "rounds": distinct(summary.rounds for summary in summaries),
        "local epochs": distinct(epoch for epoch, steps in zip(epochs, stepped, strict=True) if steps is None),
        "local steps": distinct(stepped),
        "hostile devices": distinct(map(attack_of, runs)),
        "aggregator": "" if aggregators == "mean" else aggregators,
        "learning rate": distinct(config_of(run, "train", "learning_rate") for run in runs),
        "seeds": distinct(sorted({summary.seed for summary in summaries})),
        "train / test examples": distinct(f"{s.train_examples:,} / {s.examples:,}" for s in summaries),
        "versions": versions(runs),
        "machine": machines(runs),
    }
    return {name: value for name, value in named.items() if value}


def _group(run: Run, group: str) -> str | None:
    """Return the chosen option of a Hydra group with its parameters, such as `dirichlet (alpha 0.3)`."""
    options = run.config.get(group)
    items = options.items() if isinstance(options, Mapping) else ()
    shown = [
        f"{key} {value}" for key, value in items if not key.startswith("_") and isinstance(value, str | int | float)
    ]
    name = run.choices.get(group)
    return " ".join([name, *([f"({', '.join(shown)})"] if shown else [])]) if name else None


def config_of(run: Run, group: str, name: str) -> Any:
    """Return a setting of a run's configuration; None if unknown."""
    options = run.config.get(group)
    return options.get(name) if isinstance(options, Mapping) else None


def result(comparison: Comparison) -> str:
    """Return which configuration serves the fleet best, by how much, and how its worst-served devices fare."""
    rankings = [ranked for rows in comparison.by_data if (ranked := _ranked(rows, comparison.metric))]
    if not rankings:
        return "There is nothing to compare."
    metric = title_of(comparison.metric)
    superlative = "highest" if higher_is_better(comparison.metric) else "lowest"
    if len(rankings) > 1:
        listed = " ".join(f"{_first(ranked, comparison, 'with {}, ')}." for ranked in rankings)
        return (
            f"{superlative.capitalize()} mean test {metric} of the seen devices, weighted by test examples,"
            f"{on_each_data(comparison)}: {listed}"
        )
    [ranked] = rankings
    best, figure = ranked[0]
    if len(ranked) == 1:
        value = _score(figure.mean, comparison)
        mean = f"The mean test {metric} of the seen devices, weighted by test examples, is {value}."
        return f"{mean} {_worst(best, comparison)}"
    has = f"has the {superlative} mean test {metric} of the seen devices ({{}}, weighted by test examples), "
    return f"{_first(ranked, comparison, has)}. {_worst(best, comparison)}"


def on_each_data(comparison: Comparison) -> str:
    """Return that the best of a column is one on each data; empty where all rows are on the same."""
    return " for each data set, partition and fleet" if len(comparison.by_data) > 1 else ""


Ranking = Sequence[tuple[Configuration, Spread]]


def _ranked(rows: Iterable[Configuration], metric: str) -> Ranking:
    """Return the configurations by test figure; of a strategy's several only the selected one."""
    candidates = [row for row in rows if row.selection.label in (None, row.label)]
    ranked = [(row, figure) for row in candidates if (figure := row.values["weighted_mean"])]
    return sorted(ranked, key=lambda pair: pair[1].mean, reverse=higher_is_better(metric))


def _first(ranked: Ranking, comparison: Comparison, has: str) -> str:
    """Return the best configuration and the next one, with their figures; that of the best goes into `has`."""
    best, first = ranked[0]
    text = f"{best.label} {has.format(_score(first.mean, comparison))}"
    if len(ranked) == 1:
        return text.removesuffix(", ")
    (other, second), doubt, tested = ranked[1], "", is_better(comparison, best.label, ranked[1][0].label)
    if tested is False:
        doubt = " (not significantly, by the paired test)"
    elif tested is None and first.std is not None and second.std is not None:
        near = abs(first.mean - second.mean) <= max(first.std, second.std)
        doubt = " (within one standard deviation over seeds)" if near else ""
    return f"{text}followed by {other.label} with {_score(second.mean, comparison)}{doubt}"


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


def against(comparison: Comparison) -> str:
    """Return the heading of the pairs, which names the reference."""
    references = list(dict.fromkeys(row.reference for row in comparison.paired if row.reference))
    if len(references) == 1:
        return f"Paired differences from {references[0]}"
    name = f"{references[0].split(' ')[0]} on the same data" if references else "a reference"
    return f"Paired differences from {name}"


def pairs_unit(comparison: Comparison) -> str:
    """Return the unit of the differences, and which sign is good."""
    sign = "above" if higher_is_better(comparison.metric) else "below"
    which = "" if is_percent(comparison.metric) else f", {sign} 0 is better"
    return f"{difference_of(comparison.metric)}{which}"


def pairs_result(comparison: Comparison) -> str:
    """Return which configurations differ from their reference by more than chance."""
    tested = [row for row in comparison.paired if row.p_holm is not None]
    if not tested:
        known = [row for row in comparison.paired if row.unit]
        few = [row for row in known if row.unit and row.units < FEWEST[row.unit]]
        reason = f"with fewer than {fewest(few)}" if few else "if all differences in a row are equal"
        return f"Differences cannot be tested {reason}."
    significant_rows = [row for row in tested if row.p_holm is not None and row.p_holm < _LEVEL]
    better = [row.label for row in significant_rows if _is_gain(row, comparison.metric)]
    worse = [row.label for row in significant_rows if not _is_gain(row, comparison.metric)]
    parts = [f"{word}: {', '.join(labels)}" for word, labels in (("better", better), ("worse", worse)) if labels]
    if not parts:
        return f"No difference is significant (Holm-adjusted p at least {_LEVEL} in all rows)."
    return f"Significantly (Holm-adjusted p below {_LEVEL}) {'; '.join(parts)}."


def is_better(comparison: Comparison, label: str, other: str) -> bool | None:
    """Return whether a configuration is significantly better than another; None if no test compares the two."""
    for row in comparison.paired:
        if row.p_holm is not None and {row.label, row.reference} == {label, other}:
            return row.p_holm < _LEVEL and _is_gain(row, comparison.metric) == (row.label == label)
    return None


def pairs_method(comparison: Comparison) -> str:
    """Return how the figures of the pairs are computed."""
    known = [row for row in comparison.paired if row.pairs]
    kinds = list(dict.fromkeys(row.unit for row in known if row.unit))
    sentences = [
        f"Difference: test {title_of(comparison.metric)} of a seen device minus that of the same device under the "
        f"reference ({pairs_unit(comparison)}). Every device counts once.",
        "The 95 % confidence interval and p are from one Student's t-test, so that p is below 0.05 exactly if the interval "
        "excludes 0.",
        *(_METHODS[kind] for kind in kinds),
    ]
    if sum(row.p is not None for row in known) > 1:
        sentences.append("Use p (Holm), which is adjusted for the number of comparisons.")
    if any(row.p is None for row in known):
        sentences.append(
            f"There is no test with fewer than {fewest(known)}, or if all of them have the same difference."
        )
    return " ".join(sentences)


def tested_over(rows: Iterable[Paired]) -> str:
    """Return the units that the tests of rows are over: `30 people`, `5 seeds`, `20 devices`."""
    return distinct(f"{row.units} {row.unit}" for row in rows if row.unit)


def fewest(rows: Iterable[Paired]) -> str:
    """Return how many units the tests of rows need at least: `3 seeds`, `6 devices`."""
    return distinct(f"{FEWEST[row.unit]} {row.unit}" for row in rows if row.unit)


_METHODS: Mapping[Unit, str] = {
    "people": "The test is over people: the same people return with every seed, so each counts once, with the mean over "
    "seeds. The result generalizes to other people, but only for these trained models.",
    "seeds": "The test is over seeds: each seed draws different devices, which share its trained models, so each seed counts "
    "once, with the mean over its devices. The result generalizes to other seeds; few seeds give wide intervals.",
    "devices": "The test is over the devices of a single seed; the result holds for these trained models only.",
}
"""The meaning of each unit of the test."""


def _is_gain(row: Paired, metric: str) -> bool:
    return row.difference is not None and (row.difference > 0) == higher_is_better(metric)
