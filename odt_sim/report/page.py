"""The report as one self-contained HTML page, with its plots also as PNG files."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from odt_sim._support.files import rendered, write_file
from odt_sim.persistence.run import Run
from odt_sim.persistence.run_folder import document
from odt_sim.report.comparison import Comparison
from odt_sim.report.description import result, settings, title
from odt_sim.report.notes import failures
from odt_sim.report.pictures import Picture, pictures
from odt_sim.report.records import comparison_document
from odt_sim.report.run_settings import short_paths
from odt_sim.report.sections import devices_table, sections
from odt_sim.report.table import Table


def page_path(folders: Sequence[Path]) -> Path:
    """Return the default path of the page: in the folder, or in the current folder if there are several."""
    return (folders[0] if len(folders) == 1 else Path()) / "report.html"


def write_report(comparison: Comparison, output: Path, further: Sequence[Table] = ()) -> None:
    """Write the page, and in the same folder `comparison.json` and `figures/*.png`.

    Args:
        comparison: The comparison.
        output: The page's path.
        further: Tables to add after those of the comparison.

    Raises:
        FileError: A file cannot be written.
    """
    drawn = pictures(comparison)
    write_file(output.parent / "comparison.json", document(comparison_document(comparison, output.parent)))
    write_page(output, page_html(comparison, drawn, further), drawn)


def write_page(output: Path, html: str, drawn: Sequence[Picture]) -> None:
    """Write a page, and its pictures for a light background to `figures/*.png` in the same folder.

    Raises:
        FileError: A file cannot be written.
    """
    for picture in drawn:
        write_file(output.parent / "figures" / f"{picture.name}.png", picture.light)
    write_file(output, html.encode())


def page_html(comparison: Comparison, drawn: Sequence[Picture], further: Sequence[Table] = ()) -> str:
    """Return the page, which loads no other file."""
    runs = comparison.runs
    names = short_paths([run.path for run in runs]) if runs else []
    return rendered_page(
        title=title(comparison),
        result=result(comparison),
        settings=settings(comparison),
        sections=[*sections(comparison), *further],
        failures=failures(comparison),
        pictures=drawn,
        devices=[devices_table(row) for row in comparison.rows],
        commands=[_command(run) for run in runs] if any(run.overrides for run in runs) else [],
        folders=", ".join(names) if len(names) <= 4 else f"{names[0]} to {names[-1]}",
    )


def rendered_page(**content: Any) -> str:
    """Return a page from its content; see `templates/page.html`."""
    return rendered("page.html", "odt_sim.report", **{"failures": [], "devices": [], "folders": "", **content})


def _command(run: Run) -> str:
    """Return the command that repeats a run: with its last number of rounds, without the storage that it occupies."""
    rounds = run.settings.get("run.rounds")
    overrides = tuple(given for given in run.overrides if not given.lstrip("+").startswith("run.storage="))
    if rounds is not None and rounds != str(run.config.get("run", {}).get("rounds")):
        overrides = (*(given for given in overrides if not given.startswith("run.rounds=")), f"run.rounds={rounds}")
    return f"odt-sim run {shlex.join([*run.config_folders, *overrides])}".rstrip()
