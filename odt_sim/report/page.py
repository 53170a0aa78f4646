"""The report as one self-contained HTML page, with its pictures beside it as PNG."""

import shlex
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from odt_sim.files import write_file
from odt_sim.persistence.run import Run
from odt_sim.persistence.run_folder import document
from odt_sim.report.comparison import Comparison
from odt_sim.report.comparison_file import comparison_document
from odt_sim.report.facts import facts, finding, title
from odt_sim.report.figures import Picture, pictures
from odt_sim.report.labels import short_names
from odt_sim.report.page_comparison import comparison_sections
from odt_sim.report.page_tables import devices_html


def page_path(folders: Sequence[Path]) -> Path:
    """Returns where the page of some folders is by default: in the folder, or in the current one where there are several."""
    return (folders[0] if len(folders) == 1 else Path()) / "report.html"


def write_report(comparison: Comparison, output: Path) -> None:
    """Writes the page, and beside it `comparison.json` and `figures/*.png`.

    Raises:
        FileError: They cannot be written.
    """
    beside = output.parent / "figures"
    drawn = pictures(comparison)
    for picture in drawn:
        write_file(beside / f"{picture.name}.png", picture.light)
    write_file(output.parent / "comparison.json", document(comparison_document(comparison, output.parent)))
    write_file(output, page_html(comparison, drawn).encode())


def page_html(comparison: Comparison, drawn: Sequence[Picture]) -> str:
    """Returns the page; all that is not markup is escaped, and nothing is loaded from elsewhere."""
    sections = [_headline(comparison)]
    if comparison.rows:
        sections += comparison_sections(comparison)
    sections += [_failures(comparison), *map(_figure, drawn), _devices(comparison), _reproduce(comparison)]
    style = files("odt_sim.report").joinpath("page.css").read_text("utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>odt_sim: {escape(title(comparison))}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n{''.join(sections)}</body>\n</html>\n"
    )


def _headline(comparison: Comparison) -> str:
    items = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>\n" for k, v in facts(comparison).items())
    return (
        f"<h1>{escape(title(comparison))}</h1>\n"
        f'<p class="finding">{escape(finding(comparison))}</p>\n{f"<dl>{items}</dl>" if items else ""}\n'
    )


def _failures(comparison: Comparison) -> str:
    if not comparison.failures:
        return ""
    listed = "".join(
        f'<p><span class="failure">{escape(failure.label)}</span><br>{escape(failure.error)}</p>\n'
        for failure in comparison.failures
    )
    return f"<h2>Failed runs</h2>\n{listed}"


def _figure(picture: Picture) -> str:
    light, dark = (f"data:image/png;base64,{b64encode(content).decode()}" for content in (picture.light, picture.dark))
    return (
        f'<h2>{escape(picture.title)}</h2>\n<p class="caption">{escape(picture.caption)}</p>\n'
        f'<figure class="scroll"><picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img src="{light}" alt="{escape(picture.title)}"></picture></figure>\n'
    )


def _devices(comparison: Comparison) -> str:
    tables = "".join(
        f"<details><summary>{escape(row.label)}</summary>\n{devices_html(row, comparison)}</details>\n"
        for row in comparison.rows
    )
    return f"<h2>Every device</h2>\n{tables}" if tables else ""


def _reproduce(comparison: Comparison) -> str:
    runs = comparison.runs
    if not any(run.overrides for run in runs):
        return ""
    names = short_names([run.path for run in runs])
    commands = "\n".join(_command(run) for run in runs)
    return (
        '<h2>Reproduce</h2>\n<p class="caption">Each run, from the same configuration files; its whole configuration is in '
        f"<code>.hydra/config.yaml</code> of its folder ({escape(_listed(names))}).</p>\n<pre>{escape(commands)}</pre>\n"
    )


def _command(run: Run) -> str:
    """Returns the command of a run; of one that went on, with the rounds that it has now."""
    rounds = (run.settings or {}).get("run.rounds")
    overrides = run.overrides
    if rounds is not None and rounds != str(run.config.get("run", {}).get("rounds")):
        overrides = (*(given for given in overrides if not given.startswith("run.rounds=")), f"run.rounds={rounds}")
    return f"odt-sim run {shlex.join(overrides)}".rstrip()


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{names[0]} to {names[-1]}"
