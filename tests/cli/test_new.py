"""The templates that `odt-sim new` writes run, and their tests pass unchanged."""

import ast
import sys

import pytest
from commands import FEW, lines
from exporter import EXPORTER

from odt_sim.cli.commands.new import RUNS, write_start
from odt_sim.errors import ConfigurationError


@pytest.mark.parametrize("kind", RUNS)
def test_start_has_its_test_and_its_option(kind, odt_sim, folder):
    code, printed, _ = odt_sim("new", kind, "fresh_one")
    assert code == 0
    assert f"odt-sim run --config-dir my {RUNS[kind]}fresh_one" in printed
    assert (folder / "my" / kind / "fresh_one.yaml").is_file()
    tests = ast.parse((folder / "test_fresh_one.py").read_text()).body
    assert any(isinstance(node, ast.FunctionDef) and node.name.startswith("test_") for node in tests)


def test_strategy_runs_by_its_name(run, folder):
    write_start("strategy", "fresh_one")
    code, errors = run("--config-dir", "my", *FEW, "strategy=fresh_one", "strategy.share=0.25", "hydra.run.dir=here")
    assert (code, errors.count("error")) == (0, 0)
    assert [line["strategy"] for line in lines(folder / "here" / "rounds.jsonl")] == ["FreshOne"] * 2
    sys.modules.pop("fresh_one")


def test_existing_file_is_kept_and_nothing_is_written(folder):
    (folder / "test_fresh_one.py").write_text("mine")
    with pytest.raises(ConfigurationError, match=r"^test_fresh_one\.py: already exists; choose another name"):
        write_start("strategy", "fresh_one")
    assert (folder / "test_fresh_one.py").read_text() == "mine"
    assert not (folder / "fresh_one.py").exists()


@pytest.mark.parametrize(
    ("kind", "name", "found"),
    [
        ("strategy", "Fresh", "expected a name for a Python module"),
        ("strategy", "fresh-one", "expected a name for a Python module"),
        ("model", "class", "expected a name for a Python module"),
        ("model", "../fresh", "expected a name for a Python module"),
        ("model", "numpy", "installed Python module"),
        ("strategy", "fedavg", "strategy=fedavg comes with odt_sim"),
        ("experiment", "demo", r"experiment=demo comes with odt_sim"),
    ],
)
def test_unusable_name_is_refused(kind, name, found, folder):
    before = set(folder.iterdir())
    with pytest.raises(ConfigurationError, match=found):
        write_start(kind, name)
    assert set(folder.iterdir()) == before


PASSES = """
import pytest

assert pytest.main(["-q", "--assert=plain", "-W", "error::UserWarning", "test_fresh_one.py"]) == 0
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", RUNS)
def test_written_test_passes_as_it_is(kind, folder):
    """In a fork of the process of exports, which has imported TensorFlow."""
    write_start(kind, "fresh_one")
    (folder / "passes.py").write_text(PASSES)
    EXPORTER.program(folder / "passes.py")
