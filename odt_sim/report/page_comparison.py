"""The page's sections that compare: a table for each question, and the pairs."""

from html import escape

from odt_sim.report.columns import COST, NEW_USERS, OTHER, SERVED
from odt_sim.report.comparison import Comparison
from odt_sim.report.facts import adaptation_steps, excluded, privacy
from odt_sim.report.formatting import metric_name, score
from odt_sim.report.page_tables import comparison_html, paired_html
from odt_sim.report.paired_words import against, reading, shown


def comparison_sections(comparison: Comparison) -> list[str]:
    """Returns the sections, those left out for which no run has figures."""
    notes = (excluded(comparison), privacy(comparison))
    return [
        _section(SERVED, _served(comparison), comparison_html(comparison, SERVED), *notes),
        _paired(comparison),
        _section(NEW_USERS, _new_users(comparison), comparison_html(comparison, NEW_USERS)),
        _section(COST, _cost(comparison), comparison_html(comparison, COST)),
        _section(OTHER, _other(comparison), comparison_html(comparison, OTHER)),
    ]


def _section(title: str, caption: str, table: str, *notes: str | None) -> str:
    if not table:
        return ""
    below = "".join(f'<p class="note">{escape(note)}</p>\n' for note in notes if note)
    return f'<h2>{escape(title)}</h2>\n<p class="caption">{escape(caption)}</p>\n{table}{below}'


def _served(comparison: Comparison) -> str:
    seeds = max(len(row.runs) for row in comparison.rows)
    deviation = f" ± is the sample standard deviation over up to {seeds} seeds." if seeds > 1 else ""
    others = ""
    if any(column.key == "others" for column in comparison.columns):
        others = " Others' data: a device's model on the test examples of the other devices, of which it may know less."
    return (
        f"Test {metric_name(comparison.metric)} of the seen devices; the best of each column is marked. Hurt: devices that "
        "the local-only or the global model would serve better; – is not known, or the strategy is that model itself."
        f"{others}{deviation}{_choice(comparison)}"
    )


def _choice(comparison: Comparison) -> str:
    if not any(row.chosen for row in comparison.rows):
        return ""
    return (
        " Of a strategy's configurations the one with the best mean on validation examples, over its seeds, is chosen; test "
        "figures have no part in it."
    )


def _paired(comparison: Comparison) -> str:
    refused = [f"Not paired: {row.label}, {row.refused}." for row in comparison.paired if row.refused]
    if not comparison.paired:
        return ""
    title = f"{against(comparison)}, device by device"
    if table := paired_html(comparison):
        return _section(title, shown(comparison), table, reading(comparison), *refused)
    return _section(title, "No configuration could be paired.", "\n", *refused)


def _new_users(comparison: Comparison) -> str:
    steps = adaptation_steps(comparison) or "some"
    known = any(column.key == "unseen_adapted" for column in comparison.columns)
    adapted = f" Adapted: after {steps} more local steps on their own training examples." if known else ""
    return (
        f"Test {metric_name(comparison.metric)} of the devices that took no part in training, each counted once: with the "
        f"model as it is deployed to them.{adapted}"
    )


def _cost(comparison: Comparison) -> str:
    target = ""
    if comparison.target is not None:
        target = (
            f" Rounds to target: the first evaluated round with a weighted mean of "
            f"{score(comparison.target, comparison.metric)} or better; – where not every seed got there."
        )
    return (
        "Sums over all rounds: MB as exchanged, calls of the model's train and infer signatures in the cohorts' work, and "
        "apart from them those of one deployment to all devices. State is what a device keeps between rounds, in the mean. "
        f"The reported round is the one that validates best.{target}"
    )


def _other(comparison: Comparison) -> str:
    return (
        "Of the seen devices, weighted by their examples: the task's other metrics on test examples, and "
        f"{metric_name(comparison.metric)} on what they trained and were chosen on."
    )
