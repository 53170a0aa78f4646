"""The results of a benchmark as a self-contained HTML page in the style of reports, and as Markdown."""

from functools import partial
from pathlib import Path

from odt_sim.benchmark.diagram import draw_ranks
from odt_sim.benchmark.results import Results
from odt_sim.benchmark.sections import BEST, RANKS, SERVED, facts, finding, headline, sections
from odt_sim.report.page import rendered_page, write_page
from odt_sim.report.pictures import Picture, picture
from odt_sim.report.table import markdown_table

HEADING = "## Results"
_IN_MARKDOWN = (RANKS, BEST, SERVED)
"""The tables that are in the Markdown; of the others, only the notes are."""


def write_benchmark(results: Results, output: Path) -> None:
    """Write the page, and `figures/ranks.png` next to it.

    Raises:
        FileError: They cannot be written.
    """
    drawn = diagram(results)
    write_page(output, page_html(results, drawn), drawn)


def diagram(results: Results) -> list[Picture]:
    """Return the critical-difference diagram; empty with fewer than two tasks or strategies."""
    if results.critical_difference is None:
        return []
    caption = (
        "Average ranks; 1 is best. Bars connect strategies that are statistically indistinguishable: their average ranks "
        "differ by at most the critical difference."
    )
    return [picture("ranks", "Critical-difference diagram", caption, partial(draw_ranks, results=results), after=RANKS)]


def page_html(results: Results, drawn: list[Picture]) -> str:
    """Return the page as self-contained HTML."""
    return rendered_page(
        title=headline(results),
        result=finding(results),
        settings=facts(results),
        sections=sections(results),
        pictures=drawn,
        commands=[results.command],
    )


def results_markdown(results: Results) -> str:
    """Return the results with a heading, the finding, the command, facts, the main tables and notes."""
    parts = [HEADING, f"{headline(results)}. {finding(results)}", f"```console\n$ {results.command}\n```"]
    parts.append("\n".join(f"- {name}: {value}" for name, value in facts(results).items()))
    for section in sections(results):
        shown = section.title in _IN_MARKDOWN and section.rows
        if shown or section.notes:
            parts += [f"### {section.title}", *([section.caption] if section.caption else [])]
        if shown:
            parts.append(markdown_table(section))
        if section.notes:
            parts.append("\n".join(f"- {note}" for note in section.notes))
    return "\n\n".join(parts) + "\n"


def with_results(text: str, results: str) -> str:
    """Return a page with new results, which replace `HEADING` and everything after it, or are appended."""
    before = text.split(f"{HEADING}\n")[0].rstrip()
    return f"{before}\n\n{results}" if before else results
