"""Hook of MkDocs: makes pages from the code, from the notebook, and from files outside this folder."""

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from odt_sim.cli.command_table import COMMANDS

ROOT = Path(__file__).parents[1]
SOURCES = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "benchmarks.md": "benchmarks/README.md",
    "tutorial.md": "docs/tutorial.ipynb",
}
"""The pages of the site whose source has another name or folder."""

PACKAGES = ("odt_sim", "odt_sim.data", "odt_sim.export", "odt_sim.strategies", "odt_sim.aggregators", "odt_sim.attacks")
"""The packages whose public names are described."""

OTHER_NAMES = {
    "Observers": (
        "odt_sim.observers.base.Observer",
        "odt_sim.observers.base.RunInfo",
        "odt_sim.observers.early_stopping.EarlyStopping",
    ),
    "Flower": (
        "odt_sim.flower.client.client_app",
        "odt_sim.flower.backend.server_app",
        "odt_sim.flower.messages.initial_arrays",
        "odt_sim.flower.messages.weights_of",
    ),
    "Models for phones": ("odt_sim.deploy.write.deploy",),
    "Hyper-parameters of a strategy": tuple(
        f"odt_sim.hyperparameters.{name}" for name in ("number", "count", "choice")
    ),
    "Tests of a strategy": ("odt_sim.testing.StrategyConformance",),
}
"""Public names of other modules, by heading."""

COLOUR = re.compile(r"\x1b\[[\d;]*m")
"""What the display of a run writes to a terminal or a notebook for colours."""

REFERENCES = {
    "reference/settings.md": "settings",
    "reference/records.md": "records",
    "reference/device-profiles.md": "device-profiles",
}
"""The pages that `docs/reference.py` prints, with their names there."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for page, source in SOURCES.items():
        if source.endswith(".md"):
            files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    for path, content in from_notebook(ROOT / SOURCES["tutorial.md"]):
        files.append(File.generated(config, path, content=content))
    files.append(File.generated(config, "reference/command-line.md", content=command_line()))
    files.append(File.generated(config, "reference/python.md", content=python()))
    for page, name in REFERENCES.items():
        files.append(File.generated(config, page, content=output("docs/reference.py", name)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point links at pages of the site, as they are written for the files of the repository."""
    source = SOURCES.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def link(match: re.Match[str]) -> str:
        target = site_path(os.path.normpath(Path(source).parent / match[1]))
        return f"]({os.path.relpath(target, Path(page.file.src_uri).parent)}{match[2] or ''})"

    return re.sub(r"\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)", link, markdown)


def site_path(source: str) -> str:
    """Return the page that a file of the repository becomes."""
    pages = {file: page for page, file in SOURCES.items()}
    return pages.get(source, source.removeprefix("docs/"))


def from_notebook(path: Path) -> Iterator[tuple[str, str | bytes]]:
    """Yield the page of a notebook and its pictures, each with its path in the site."""
    blocks, pictures = [], 0
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            blocks.append(source)
            continue
        blocks.append(f"```python\n{source}\n```")
        for result in cell["outputs"]:
            data = result.get("data", {})
            if "image/png" in data:
                pictures += 1
                name = f"{path.stem}-{pictures}.png"
                blocks.append(f"![Output of the cell above]({name})")
                yield f"{name}", base64.b64decode(data["image/png"])
            elif text := "".join(result.get("text") or data.get("text/plain", "")).rstrip():
                blocks.append(f"```text\n{COLOUR.sub('', text)}\n```")
    yield f"{path.stem}.md", "\n\n".join(blocks)


OPTIONS = {"Device": "\n    options:\n      inherited_members: true"}
"""Options of mkdocstrings: a device's weights and checkpoints are members of its base class."""


def python() -> str:
    """Return the page of the public names: a directive of mkdocstrings for each."""
    parts = ["# Python", "The public names. Everything else may change between versions."]
    for package in PACKAGES:
        names = sorted(import_module(package).__all__, key=str.lower)
        parts += [f"## {package}", *(f"::: {package}.{name}{OPTIONS.get(name, '')}" for name in names)]
    for heading, others in OTHER_NAMES.items():
        parts += [f"## {heading}", *(f"::: {name}" for name in others)]
    return "\n\n".join(parts)


def command_line() -> str:
    """Return the page of the command: what each subcommand prints for `--help`."""
    page = ["# Command line", "What each command prints for `--help`.", usage()]
    page += [f"## odt-sim {name}\n\n{usage(name)}" for name in COMMANDS]
    return "\n\n".join(page)


def usage(*command: str) -> str:
    """Return a command's help as a block of text."""
    script = Path(sys.executable).with_name("odt-sim")
    return f"```text\n{output(str(script), *command, '--help').strip()}\n```"


def output(*arguments: str) -> str:
    """Return what Python prints."""
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
