"""The examples of the README and the docs run as they are shown.

A block with a title is a file, an untitled `python` block runs, and so does each `odt-sim` line of a `sh` block, with
settings that keep it small. A `console` block is not run.
"""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
from dialects import generated
from exporter import EXPORTER
from hydra.utils import get_class
from nbclient import NotebookClient
from omegaconf import OmegaConf
from PIL import Image
from safetensors.numpy import save_file

from odt_sim import Device, TrainableModel
from odt_sim.cli.commands.run import launch
from odt_sim.cli.main import main
from odt_sim.data import digits
from odt_sim.fleet.profile import DeviceProfile, Timing

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)
SMALL = {"run.rounds": "2", "backend": "serial", "model": "digits_mlp"}
"""Settings that are added to every command unless the page sets them."""

FAST = ("README", "docs/how-to/own-metric")
SLOW = (
    "docs/bring-your-own",
    "docs/aggregation",
    "docs/how-to/own-strategy",
    "docs/how-to/results",
    "docs/how-to/resume",
    "docs/how-to/own-model",
    "docs/how-to/own-data",
    "docs/how-to/callbacks",
    "docs/how-to/sweeps",
    "docs/how-to/deploy",
    "docs/how-to/new-version",
    "docs/how-to/forecasts",
    "docs/how-to/moving",
    "docs/how-to/trackers",
    "docs/how-to/check-claims",
)

Blocks = list[tuple[str, str, str]]
"""The language, the title and the content of each block of a page."""


def blocks_of(page: str) -> Blocks:
    return BLOCK.findall((ROOT / f"{page}.md").read_text())


def write_files(blocks: Blocks, folder: Path) -> None:
    for _, title, content in blocks:
        if title:
            (folder / title).parent.mkdir(parents=True, exist_ok=True)
            (folder / title).write_text(content)


def commands_of(blocks: Blocks) -> list[str]:
    return [
        line.partition("#")[0]
        for language, _, content in blocks
        for line in content.splitlines()
        if language == "sh" and line.startswith("odt-sim ")
    ]


def run_command(line: str, reports: bool) -> int:
    """Run a command; `odt-sim run` without its report, which takes longer than a small run, unless it is needed."""
    _, command, *arguments = line.split()
    given = " ".join(arguments)
    small = [f"{key}={value}" for key, value in SMALL.items() if not re.search(rf"(^| ){key}=", given)]
    if command == "run" and not reports:
        return launch([*arguments, *small]).failed
    return main([command, *arguments, *(small if command == "run" else [])])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digits_mlp: TrainableModel) -> Path:
    """A working folder with `digits.tflite`, and `app.tflite` of another tool; modules can be imported from it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "digits.tflite").write_bytes(digits_mlp.content)
    (tmp_path / "app.tflite").write_bytes(generated("train_epoch").content)
    return tmp_path


@pytest.mark.parametrize("page", [*FAST, *(pytest.param(page, marks=pytest.mark.slow) for page in SLOW)])
def test_examples_of_a_page_run(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = blocks_of(page)
    write_files(blocks, folder)
    for _, title, _ in blocks:
        monkeypatch.delitem(sys.modules, Path(title).stem, raising=False)
    for command in commands_of(blocks):
        assert run_command(command, reports=page in FAST) == 0, command
    program = "\n".join(content for language, title, content in blocks if language == "python" and not title)
    if "keras" in program:
        (folder / "example.py").write_text(program)
        EXPORTER.program(folder / "example.py")
    else:
        exec(program, {"__name__": "__main__"})
    for _, title, _ in blocks:
        if title.startswith("test_"):
            subprocess.run([sys.executable, "-m", "pytest", "-q", title], check=True)


@pytest.mark.slow
def test_examples_of_the_segmentation_page_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    for user in ("anna", "bo", "cy", "di", "eva"):
        for kind in ("images", "masks"):
            (folder / "skin" / user / kind).mkdir(parents=True)
        for i in range(12):
            mask = np.kron(random.random((4, 4)) < 0.3, np.ones((8, 8), bool))
            Image.fromarray(np.where(mask, 90, 200).astype(np.uint8)).save(folder / f"skin/{user}/images/{i}.png")
            Image.fromarray(mask.astype(np.uint8) * 255).save(folder / f"skin/{user}/masks/{i}.png")
    test_examples_of_a_page_run("docs/how-to/segmentation", folder, monkeypatch)


def test_examples_of_the_phones_page_read_what_a_phone_gives(folder: Path, digits_mlp: TrainableModel) -> None:
    timing = Timing(16, median=2.0, lower_quartile=1.5, upper_quartile=2.5, calls=100)
    DeviceProfile("Pixel 8", "digits", "f" * 64, {"train": timing, "infer": timing}, 12.5).write(folder / "profiles")
    weights = Device(digits_mlp, (digits().x[:16], digits().y[:16])).parameters()
    save_file(dict(zip(digits_mlp.layout.names, weights.tensors(), strict=True)), "digits.personal.safetensors")
    for _, _, content in (block for block in blocks_of("docs/phone") if block[0] == "python"):
        exec(content, {"__name__": "__main__"})


@pytest.mark.slow
def test_tutorial_runs(tmp_path: Path) -> None:
    notebook = nbformat.read(DOCS / "tutorial.ipynb", as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": tmp_path}}).execute()
    before, after = re.findall(r"0\.\d+|1\.0+", notebook.cells[-2].outputs[-1].text)
    assert float(after) >= float(before) > 0.5


def test_readme_lists_every_option() -> None:
    options = {path.stem for path in (ROOT / "conf").glob("*/*.yaml")} - {"demo"}
    assert options <= set(re.findall(r"`(\w+)`", (ROOT / "README.md").read_text()))


def test_page_of_strategies_says_what_the_code_says() -> None:
    """All are there, with what `Strategy.needs` and the declarations of the class say."""
    page = (DOCS / "how-to/choose-strategy.md").read_text()
    lines = page.partition("## All strategies")[2].splitlines()
    rows = [line.strip("|").split("|") for line in lines if line.startswith("| `")]
    told = {name: (needs, marks.split()) for names, _, needs, marks in rows for name in re.findall(r"`(\w+)`", names)}
    options = {path.stem: OmegaConf.load(path)._target_ for path in (ROOT / "conf/strategy").glob("*.yaml")}
    assert told.keys() == options.keys()
    for name, target in options.items():
        strategy, (needs, marks) = get_class(target), told[name]
        by_model = {"classes", "train_body", "adapters of its rank", ""}  # decided by terms, normalization, settings
        assert set(needs.strip().split(", ")) - by_model == strategy.needs, name
        declared = {
            "V": strategy.without_validation is not None,
            "E": strategy.keeps_updates,
            "S": not strategy.asynchronous,
            "P": strategy.partial_work,
        }
        assert marks == [mark for mark, holds in declared.items() if holds], name


def test_readme_counts_the_strategies() -> None:
    page = (DOCS / "how-to/choose-strategy.md").read_text().partition("## All strategies")[2]
    rows = re.compile(r"^\| (`.+?`) \|", re.MULTILINE)
    of_section = [len(re.findall("`", "".join(rows.findall(section)))) // 2 for section in page.split("\n### ")[1:]]
    assert page.split("\n### ")[1].startswith("One model for all users")
    counted = f"| {sum(of_section)}, of which {sum(of_section[1:])} personalize |"
    assert counted in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", *map(str, DOCS.rglob("*.md"))])
def test_links_between_files_exist(page: str) -> None:
    path, generated = ROOT / page, (DOCS / "generate.py").read_text()
    for link in re.findall(r"\]\((?![a-z]+:|#)([^)#\s]+)", path.read_text()):
        assert (path.parent / link).exists() or f'"{link}"' in generated, link
