"""The results of a benchmark as a self-contained HTML page in the style of reports, and as Markdown."""

from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from odt_sim.benchmark.ranks import cliques
from odt_sim.benchmark.results import Results
from odt_sim.benchmark.sections import BEST, RANKS, SERVED, facts, finding, headline, sections
from odt_sim.report.page import rendered_page, write_page
from odt_sim.report.pictures import Picture, picture
from odt_sim.report.style import PALETTE, WIDTH
from odt_sim.report.table import markdown_table

BAR, LABEL = 0.6, 1.0  # heights of a bar and a label, in rows

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


def draw_ranks(figure: Figure, results: Results) -> None:
    """Draw the critical-difference diagram of Demsar (2006): average ranks, with bars over indistinguishable strategies.

    The better half is labelled on the left.
    """
    average = results.ranks().mean(axis=0).tolist()
    bars = cliques(average, results.critical_difference or 0.0)
    half = (len(average) + 1) // 2
    top = 1 + BAR * len(bars) + LABEL
    rows = top + half * LABEL
    figure.set_size_inches(WIDTH, 0.9 + 0.24 * rows)
    axes = figure.add_subplot()
    color = axes.xaxis.label.get_color()
    for place, (first, last) in enumerate(bars):
        axes.plot([average[first] - 0.1, average[last] + 0.1], [1 + BAR * place] * 2, color=PALETTE[0], linewidth=4)
    low, high = 1.0, max(len(average), 2)
    margin = 0.3 * (high - low)
    for place, (name, rank) in enumerate(zip(results.ranked_strategies, average, strict=True)):
        left = place < half
        row = top + LABEL * (place if left else len(average) - 1 - place)
        end = low - 0.05 * margin if left else high + 0.05 * margin
        axes.plot([rank, rank, end], [0, row, row], color=color, linewidth=0.8)
        text = f"{name}  {rank:.1f}" if left else f"{rank:.1f}  {name}"
        axes.text(end, row, f"{text} " if left else f" {text}", ha="right" if left else "left", va="center", fontsize=9)
    if (difference := results.critical_difference) is not None:  # its length, above the scale
        axes.plot([1, 1 + difference], [-1.4, -1.4], color=color, linewidth=1.5, marker="|")
        text = f"critical difference {difference:.1f}"
        axes.text(1 + difference / 2, -1.6, text, ha="center", va="bottom", fontsize=9)
    axes.set(xlim=(low - margin, high + margin), ylim=(rows, -2.2))
    axes.grid(visible=False)
    axes.xaxis.tick_top()
    axes.set_yticks([])
    for name, spine in axes.spines.items():
        spine.set_visible(name == "top")
    axes.spines["top"].set_position(("data", 0))
    axes.spines["top"].set_bounds(low, high)
    axes.spines["top"].set_color(color)
    axes.set_xticks([tick for tick in axes.get_xticks() if low <= tick <= high])
    axes.tick_params(axis="x", length=4)


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
