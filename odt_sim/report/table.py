"""The table of a report as a value, and its writers for the terminal, LaTeX and Markdown; `tables.html` is the page's."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.table import Table as RichTable
from rich.text import Text

_NARROWEST_NAME, _LONGEST_NAME = 15, 32
"""The limits of the width that the names of rows need in a terminal, in characters; longer names are folded."""

_LATEX = {
    **{"\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{character: f"\\{character}" for character in "$&#_%"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}"},
    **{"\N{MINUS SIGN}": "$-$", "±": r"$\pm$", "–": "--", "²": r"\textsuperscript{2}", "\N{NO-BREAK SPACE}": "~"},
    **{"`": r"\textasciigrave{}", "'": r"\textquotesingle{}", "×": r"$\times$"},
}
_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")


class Cell(NamedTuple):
    """A value of a table.

    Attributes:
        text: The value.
        below: Small lines below it, such as a deviation; a terminal shows the first.
        best: Whether it is the best of its column.
    """

    text: str
    below: Sequence[str] = ()
    best: bool = False


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        name: Its name, in the first column.
        cells: Its values.
        notes: Small lines below the name.
        color: The name's colour in the plots; empty for none.
    """

    name: str
    cells: Sequence[Cell] = ()
    notes: Sequence[str] = ()
    color: str = ""


@dataclass(frozen=True)
class Table:
    """A part of a report: a table, with a caption above and notes below.

    Attributes:
        title: Its title.
        caption: How to read it.
        headings: The headings of the columns, of at most two lines; the first is of the names.
        rows: Its rows; empty for a part that has notes only.
        notes: Remarks, each a paragraph.
    """

    title: str
    caption: str = ""
    headings: Sequence[str] = ()
    rows: Sequence[Row] = ()
    notes: Sequence[str] = ()


def terminal_table(table: Table, width: int, important: Sequence[str]) -> RichTable:
    """Return a table for a terminal: names are folded if necessary, never cut; the best values are bold with a star.

    Args:
        table: The table.
        width: The terminal's width in characters.
        important: The headings of the columns to show, the most important first: the first two, and as many of the others
            as leave enough width for the names.
    """
    starred = any(cell.best for row in table.rows for cell in row.cells)
    cells = {
        heading: [_terminal_cell(row.cells[place], starred) for row in table.rows]
        for place, heading in enumerate(table.headings[1:])
        if heading in important
    }
    shown = _fitting(table, width, {heading: cells[heading] for heading in important if heading in cells})
    left = width - sum(shown.values())
    drawn = RichTable(
        title=Text(table.title),  # not markup, because a label may contain brackets
        title_justify="left",
        title_style="bold",
        caption=Text("\n".join(table.notes), style="dim"),
        caption_justify="left",
        caption_style="none",
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    lines = max((heading.count("\n") for heading in shown), default=0)
    drawn.add_column(Text("\n" * lines + table.headings[0]), overflow="fold")
    columns = [heading for heading in cells if heading in shown]
    for heading in columns:
        drawn.add_column(Text("\n" * (lines - heading.count("\n")) + heading), justify="right", no_wrap=True)
    for place, row in enumerate(table.rows):
        drawn.add_row(_terminal_name(row, left), *(cells[heading][place] for heading in columns))
    return drawn


def _fitting(table: Table, width: int, cells: Mapping[str, Sequence[Text]]) -> dict[str, int]:
    """Return the widths of the columns that leave enough width for the names."""
    longest = max((len(line) for row in table.rows for line in _terminal_name(row).plain.split("\n")), default=0)
    left = width - max(_NARROWEST_NAME, min(longest, _LONGEST_NAME))
    shown: dict[str, int] = {}
    for heading, texts in cells.items():
        size = 1 + max(len(line) for text in (heading, *(text.plain for text in texts)) for line in text.split("\n"))
        left -= size
        if len(shown) >= 2 and left < 0:
            break
        shown[heading] = size
    return shown


def _terminal_name(row: Row, width: float = float("inf")) -> Text:
    """Return a row's name and notes, a line for each.

    The value of an override that is too long gets its own line: if folded within its digits, it would be misread.
    """
    notes = [note if 2 + len(note) <= width else note.replace("=", "=\n    ", 1) for note in row.notes]
    return Text("\n  ".join([row.name, *notes]))


def _terminal_cell(cell: Cell, starred: bool) -> Text:
    space = " " if starred else ""
    text = Text(f"{cell.text}*" if cell.best else f"{cell.text}{space}", style="bold green" if cell.best else "")
    return text.append(f"\n{cell.below[0]}{space}", style="dim") if cell.below else text


def latex_table(table: Table) -> str:
    r"""Return a table in a LaTeX environment for `\usepackage{booktabs}`, with caption and label; best values are bold."""
    label = re.sub(r"\W+", "-", table.title.lower()).strip("-")
    headings = [_stacked(heading.split("\n"), "r", "b") for heading in table.headings[1:]]
    lines = [
        r"\begin{table}",
        r"  \centering\footnotesize\setlength{\tabcolsep}{3pt}",
        f"  \\caption{{{escaped(f'{table.title}. {table.caption}')}}}",
        f"  \\label{{tab:{label}}}\\vspace{{1ex}}",
        f"  \\begin{{tabular}}{{@{{}}l{'r' * len(headings)}@{{}}}}",
        r"    \toprule",
        f"    {' & '.join([escaped(table.headings[0]), *headings])} \\\\",
        r"    \midrule",
        *(f"    {' & '.join(_latex_cells(row))} \\\\ \\addlinespace[1pt]" for row in table.rows),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    return "\n" + "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Return text escaped so that LaTeX prints it literally."""
    return "".join(
        _LATEX.get(character, character) for character in _APOSTROPHE.sub("\N{RIGHT SINGLE QUOTATION MARK}", text)
    )


def _latex_cells(row: Row) -> list[str]:
    cells = [_stacked([cell.text], "r", "t", cell.below, bold=cell.best) for cell in row.cells]
    return [_stacked([row.name], "l", "t", row.notes), *cells]


def _stacked(lines: Sequence[str], side: str, at: str, small: Sequence[str] = (), *, bold: bool = False) -> str:
    """Return lines stacked in one cell, escaped."""
    texts = [rf"\textbf{{{escaped(line)}}}" if bold else escaped(line) for line in lines]
    texts += [rf"{{\scriptsize {escaped(line)}}}" for line in small]
    if len(texts) == 1:
        return texts[0]
    stacked = r" \\ ".join(texts)
    return rf"\begin{{tabular}}[{at}]{{@{{}}{side}@{{}}}}{stacked}\end{{tabular}}"


def markdown_table(table: Table) -> str:
    """Return the rows of a table in Markdown; best values are bold."""
    head = [heading.replace("\n", " ") for heading in table.headings]
    rows = [[", ".join([row.name, *row.notes]), *map(_markdown_cell, row.cells)] for row in table.rows]
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _markdown_cell(cell: Cell) -> str:
    text = f"**{cell.text}**" if cell.best else cell.text
    return f"{text} ({'; '.join(cell.below)})" if cell.below else text
