"""Results of a benchmark as Markdown, for the documentation."""

from odt_sim.benchmark.results import Results
from odt_sim.benchmark.sections import BEST, RANKS, SERVED, facts, finding, headline, sections
from odt_sim.report.page_tables import Cell, Table

HEADING = "## Results"
SHOWN = (RANKS, BEST, SERVED)
"""Sections whose tables are included; of the others, only the notes are."""


def results_markdown(results: Results) -> str:
    """Return the results with a heading, the finding, the command, facts, the main tables and notes."""
    parts = [HEADING, f"{headline(results)}. {finding(results)}", f"```console\n$ {results.command}\n```"]
    parts.append("\n".join(f"- {name}: {value}" for name, value in facts(results).items()))
    for section in sections(results):
        shown = section.title in SHOWN and section.table
        if shown or section.notes:
            parts += [f"### {section.title}", *([section.caption] if section.caption else [])]
        if shown:
            parts.append(_table(section.table))
        if section.notes:
            parts.append("\n".join(f"- {note}" for note in section.notes))
    return "\n\n".join(parts) + "\n"


def with_results(text: str, results: str) -> str:
    """Return a page with new results, which replace `HEADING` and everything after it, or are appended."""
    before = text.split(f"{HEADING}\n")[0].rstrip()
    return f"{before}\n\n{results}" if before else results


def _table(table: Table | None) -> str:
    assert table is not None
    head = [heading.replace("\n", " ") for heading in table.headings]
    rows = [[", ".join([row.name.text, *row.name.notes]), *map(_cell, row.cells)] for row in table.rows]
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(cell: Cell) -> str:
    text = f"**{cell.text}**" if cell.best else cell.text
    return f"{text} ({cell.deviation})" if cell.deviation else text
