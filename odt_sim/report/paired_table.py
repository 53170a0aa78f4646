"""Each configuration against its reference, device by device, as a table for the terminal."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from odt_sim.report.comparison import Comparison
from odt_sim.report.formatting import probability, signed, signed_range
from odt_sim.report.paired_words import against, unit
from odt_sim.report.pairing import Paired
from odt_sim.report.table import name, plain_table


def paired_table(comparison: Comparison) -> Table | Text | None:
    """Returns what each configuration gains over its reference; None where there is nothing to compare with."""
    known = [row for row in comparison.paired if row.pairs]
    refused = [
        Text.assemble(("not paired  ", "bold"), f"{row.label}: {row.refused}")
        for row in comparison.paired
        if row.refused
    ]
    if not known:
        return Text("\n").join(refused) if refused else None
    table = plain_table(f"{against(comparison)}, device by device: {unit(comparison)}")
    names = {row.label: name(row) for row in comparison.rows}
    for heading in ("strategy", "difference", "95 % interval", "p (Holm)", "better", "equal", "worse"):
        table.add_column(heading, justify="left" if heading == "strategy" else "right", overflow="fold")
    for row in known:
        table.add_row(names[row.label], *_cells(row, comparison.metric))
    table.caption = _caption(refused)
    return table


def _cells(row: Paired, metric: str) -> Sequence[str]:
    return (
        signed(row.difference, metric),
        signed_range(row.interval, metric),
        probability(row.p_holm),
        *(str(count) for count in (row.better, row.pairs - row.better - row.worse, row.worse)),
    )


def _caption(refused: Sequence[Text]) -> Text:
    line = "better, equal, worse: how many devices; p: Wilcoxon's signed-rank test, adjusted for all rows"
    return Text("\n").join([Text(line, style="dim"), *refused])
