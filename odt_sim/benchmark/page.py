"""Page of a benchmark, a self-contained HTML file in the style of reports."""

from functools import partial
from pathlib import Path

from odt_sim._support.files import rendered, write_file
from odt_sim.benchmark.diagram import draw_ranks
from odt_sim.benchmark.results import Results
from odt_sim.benchmark.sections import RANKS, facts, finding, headline, sections
from odt_sim.report.pictures import Picture, picture

CAPTION = (
    "Average ranks; 1 is best. Bars connect strategies that are statistically indistinguishable: their average ranks differ "
    "by at most the critical difference."
)


def write_page(results: Results, output: Path) -> None:
    """Write the page, and `figures/ranks.png` next to it.

    Raises:
        FileError: They cannot be written.
    """
    drawn = diagram(results)
    if drawn:
        write_file(output.parent / "figures" / f"{drawn.name}.png", drawn.light)
    write_file(output, page_html(results, drawn).encode())


def diagram(results: Results) -> Picture | None:
    """Return the critical-difference diagram; None with fewer than two tasks or strategies."""
    if results.critical_difference is None:
        return None
    return picture("ranks", "Critical-difference diagram", CAPTION, partial(draw_ranks, results=results))


def page_html(results: Results, drawn: Picture | None) -> str:
    """Return the page as self-contained HTML."""
    return rendered(
        "benchmark.html",
        *("odt_sim.benchmark", "odt_sim.report"),
        title=headline(results),
        finding=finding(results),
        facts=facts(results),
        sections=sections(results),
        picture=drawn,
        picture_after=RANKS,
        command=results.command,
    )
