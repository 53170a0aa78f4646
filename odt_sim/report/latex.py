r"""The tables of the report in LaTeX, for `\usepackage{booktabs}`."""

import re
from collections.abc import Sequence

from odt_sim.report.comparison import Comparison
from odt_sim.report.description import title
from odt_sim.report.page import Section, sections
from odt_sim.report.page_tables import Cell, Name, Row, Table

_ESCAPED = {
    **{"\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{character: f"\\{character}" for character in "$&#_%"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}"},
    **{"\N{MINUS SIGN}": "$-$", "±": r"$\pm$", "–": "--", "²": r"\textsuperscript{2}", "\N{NO-BREAK SPACE}": "~"},
    **{"`": r"\textasciigrave{}", "'": r"\textquotesingle{}", "†": r"\dag{}", "×": r"$\times$"},
}
_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")


def latex(comparison: Comparison) -> str:
    r"""Return all tables of the page, each in a `table` environment with caption and label; best values are bold."""
    head = f"% odt_sim: {title(comparison)}. Needs \\usepackage[T1]{{fontenc}} and \\usepackage{{booktabs}}.\n"
    return head + "".join(_table(section, section.table) for section in sections(comparison) if section.table)


def escaped(text: str) -> str:
    """Return text escaped so that LaTeX prints it literally."""
    return "".join(
        _ESCAPED.get(character, character) for character in _APOSTROPHE.sub("\N{RIGHT SINGLE QUOTATION MARK}", text)
    )


def _table(section: Section, table: Table) -> str:
    label = re.sub(r"\W+", "-", section.title.lower()).strip("-")
    lines = [
        r"\begin{table}",
        r"  \centering\footnotesize\setlength{\tabcolsep}{3pt}",
        f"  \\caption{{{escaped(f'{section.title}. {section.caption}')}}}",
        f"  \\label{{tab:{label}}}\\vspace{{1ex}}",
        f"  \\begin{{tabular}}{{@{{}}l{'r' * (len(table.headings) - 1)}@{{}}}}",
        r"    \toprule",
        f"    {' & '.join([escaped(table.headings[0]), *map(_heading, table.headings[1:])])} \\\\",
        r"    \midrule",
        *(f"    {_row(row)} \\\\ \\addlinespace[1pt]" for row in table.rows),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    return "\n" + "\n".join(lines) + "\n"


def _heading(heading: str) -> str:
    return _lines([escaped(line) for line in heading.split("\n")], "r", "b")


def _row(row: Row) -> str:
    return " & ".join([_name(row.name), *map(_cell, row.cells)])


def _name(name: Name) -> str:
    first, *notes = [escaped(line) for line in (name.text, *name.notes)]
    return _lines([first, *(rf"{{\scriptsize {note}}}" for note in notes)], "l", "t")


def _cell(cell: Cell) -> str:
    value = rf"\textbf{{{escaped(cell.text)}}}" if cell.best else escaped(cell.text)
    small = [rf"{{\scriptsize {escaped(line)}}}" for line in cell.deviation.split("\n") if line]
    return _lines([value, *small], "r", "t")


def _lines(lines: Sequence[str], side: str, place: str) -> str:
    """Return lines stacked in one cell."""
    if len(lines) == 1:
        return lines[0]
    stacked = r" \\ ".join(lines)
    return rf"\begin{{tabular}}[{place}]{{@{{}}{side}@{{}}}}{stacked}\end{{tabular}}"
