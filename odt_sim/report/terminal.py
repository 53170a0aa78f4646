"""The comparison for a terminal: all configurations, each against its reference, and differences between runs."""

from rich.console import Group
from rich.text import Text

from odt_sim.metrics.names import is_percent, title_of
from odt_sim.report.comparison import Comparison
from odt_sim.report.description import against, fewest, on_each_data, pairs_unit, tested_over
from odt_sim.report.formatting import score
from odt_sim.report.notes import failures, notes, optimism
from odt_sim.report.provenance import differences
from odt_sim.report.sections import figure_cell, named_rows, paired_table
from odt_sim.report.table import Table, terminal_table

_IMPORTANT = (
    *("weighted_mean", "worst", "attack_success", "bottom_decile", "unseen", "hurt_local", "megabytes"),
    *("rounds_to_target", "unseen_adapted", "global_attack_success", "train_calls", "others", "mean", "std"),
    *("hurt_global", "infer_calls", "state_kilobytes", "seconds", "validation", "optimism"),
)
"""The columns of a wide terminal, the most important first; the page has all columns."""

_IMPORTANT_OF_PAIRS = ("difference", "p (Holm)", "worse", "better", "95\N{NO-BREAK SPACE}% CI", "equal")


def comparison_text(comparison: Comparison, width: int = 100) -> Group:
    """Return the comparison as a table; failed runs follow with their errors.

    Args:
        comparison: The comparison; without a complete run there is no table.
        width: The terminal's width in characters; a narrower terminal shows fewer columns.
    """
    failed = [Text.assemble(("failed  ", "bold red"), f"{label}: {error}") for label, error in failures(comparison)]
    if not comparison.rows:
        return Group(*failed)
    columns = {column.title: column for column in comparison.columns if column.key in _IMPORTANT}
    titles = {column.key: title for title, column in columns.items()}
    names = named_rows(comparison)
    table = Table(
        f"Test {title_of(comparison.metric)} by strategy{', %' if is_percent(comparison.metric) else ''}",
        headings=["strategy", *columns],
        rows=[
            names[row.label]._replace(cells=[figure_cell(comparison, row, column) for column in columns.values()])
            for row in comparison.rows
        ],
        notes=[*_legend(comparison), "the report page has more columns"],
    )
    return Group(terminal_table(table, width, [titles[key] for key in _IMPORTANT if key in titles]), *failed)


def _legend(comparison: Comparison) -> list[str]:
    lines = []
    if any(comparison.is_best(row, column) for row in comparison.rows for column in comparison.columns):
        lines.append(f"* best in its column{on_each_data(comparison)}")
    hurts = [hurt for row in comparison.rows for key, hurt in row.hurt.items() if hurt and key.startswith("hurt_")]
    if hurts:
        interval = ", with its 95 % CI" if any(hurt.range for hurt in hurts) else ""
        lines.append(f"hurt: % of devices worse off than with the local-only or global model{interval}")
    if any(row.selection.label not in (None, row.label) for row in comparison.rows):
        lines.append("chosen on validation examples; odt-sim report DIR --best shows only these configurations")
    if (seeds := max(len(row.runs) for row in comparison.rows)) > 1:
        lines.append(f"± sample standard deviation over up to {seeds} seeds")
    if comparison.target is not None:
        target = score(comparison.target, comparison.metric)
        lines.append(f"rounds to a mean of {target}; – unless every seed reaches it")
    return [*lines, *notes(comparison), *filter(None, [optimism(comparison)])]


def paired_text(comparison: Comparison, width: int = 100) -> Group | None:
    """Return the gains of each configuration over its reference; None if there is no reference.

    Args:
        comparison: The comparison.
        width: The terminal's width in characters; a narrower terminal shows fewer columns.
    """
    pairs = [row for row in comparison.paired if row.pairs]
    refused = [
        Text.assemble(("not paired  ", "bold"), f"{row.label}: {row.refused}")
        for row in comparison.paired
        if row.refused
    ]
    if not pairs:
        return Group(*refused) if refused else None
    table = paired_table(comparison)
    tested = any(row.p is not None for row in pairs)
    legend = (
        f"CI and p: Student's t over {tested_over(pairs)}; p adjusted by Holm"
        if tested
        else f"no CI or p with fewer than {fewest(pairs)}"
    )
    shown = Table(
        f"{against(comparison)}: {pairs_unit(comparison)}",
        headings=table.headings,
        rows=table.rows,
        notes=["better, equal, worse: number of devices", legend],
    )
    return Group(terminal_table(shown, width, _IMPORTANT_OF_PAIRS), *refused)


def differences_text(comparison: Comparison) -> Text | None:
    """Return the differences between runs apart from strategies and settings, one per line; None without any."""
    lines = [Text.assemble(("differs  ", "bold"), difference) for difference in differences(comparison)]
    return Text("\n").join(lines) if lines else None
