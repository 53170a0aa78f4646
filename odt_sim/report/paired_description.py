"""Paired differences in words: their reference, unit, result, and how they are tested."""

from collections.abc import Iterable, Mapping

from odt_sim.metrics.names import higher_is_better, is_percent, title_of
from odt_sim.report.comparison import Comparison
from odt_sim.report.formatting import difference_of, distinct
from odt_sim.report.pairing import Paired
from odt_sim.report.significance import FEWEST, Unit

_LEVEL = 0.05


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
