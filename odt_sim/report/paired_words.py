"""What the pairs of a comparison are, how to read them and what they show, in words."""

from odt_sim.metrics.fleet import HIGHER_IS_BETTER
from odt_sim.report.comparison import Comparison
from odt_sim.report.formatting import metric_name
from odt_sim.report.pairing import Paired
from odt_sim.report.significance import FEWEST_PAIRS, RESAMPLES

_LEVEL = 0.05


def against(comparison: Comparison) -> str:
    """Returns with what the configurations are compared."""
    references = list(dict.fromkeys(row.reference for row in comparison.paired if row.reference))
    if len(references) == 1:
        return f"Against {references[0]}"
    return f"Against {references[0].split(' ')[0]} under the same conditions" if references else "Against nothing"


def unit(comparison: Comparison) -> str:
    """Returns in what differences are written, and which of them are good."""
    if comparison.metric == "accuracy":
        return "percentage points of accuracy"
    which = "above" if HIGHER_IS_BETTER[comparison.metric] else "below"
    return f"{metric_name(comparison.metric)}, {which} zero is better"


def reading(comparison: Comparison) -> str:
    """Returns how the figures were made, and what they can say."""
    known = [row for row in comparison.paired if row.pairs]
    sentences = [
        f"Mean over pairs of the test {metric_name(comparison.metric)} of a seen device minus that of the same device, with "
        f"the same examples, under the reference ({unit(comparison)}). Every device counts once.",
        _interval(max((row.seeds for row in known), default=0)),
        "p is of Wilcoxon's signed-rank test, two-sided, with Pratt's treatment of devices without a difference. "
        f"{_holm(sum(row.p is not None for row in known))}",
    ]
    if any(row.p is None for row in known):
        sentences.append(f"Fewer than {FEWEST_PAIRS} pairs have neither: their p could not fall below {_LEVEL}.")
    return " ".join(sentences)


def shown(comparison: Comparison) -> str:
    """Returns which configurations differ from their reference by more than chance."""
    tested = [row for row in comparison.paired if row.p_holm is not None and row.difference is not None]
    if not tested:
        return "There are too few pairs to tell a difference from chance."
    sure = [row for row in tested if row.p_holm is not None and row.p_holm < _LEVEL]
    better = [row.label for row in sure if _is_gain(row, comparison.metric)]
    worse = [row.label for row in sure if not _is_gain(row, comparison.metric)]
    parts = [f"{what}: {', '.join(labels)}" for what, labels in (("better", better), ("worse", worse)) if labels]
    if not parts:
        return f"{against(comparison)} no difference is more than chance (Holm's p is at least {_LEVEL} everywhere)."
    return f"{against(comparison)}, by more than chance (Holm's p below {_LEVEL}) {'; '.join(parts)}."


def _is_gain(row: Paired, metric: str) -> bool:
    return row.difference is not None and (row.difference > 0) == HIGHER_IS_BETTER[metric]


def _interval(seeds: int) -> str:
    of = f"The interval is that of a percentile bootstrap, 95 %, {RESAMPLES:,} resamples"
    if seeds < 2:
        return f"{of} of the devices: it says nothing of other seeds."
    return (
        f"{of}: first of the {seeds} seeds, then of each one's devices, since devices of one run share what was trained. "
        "With few seeds it is rough."
    )


def _holm(rows: int) -> str:
    several = (
        f"Of {rows} comparisons some look sure by chance: read the p that Holm's method adjusts for that. "
        if rows > 1
        else ""
    )
    return f"{several}It takes devices as independent, as they are once models are trained; it says nothing of other seeds."
