"""What the README shows is run as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def code(language: str, containing: str) -> str:
    """Returns the one block of the README that is in a language and contains a text."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if containing in block]
    return str(found)


def run(folder: Path, *command: str) -> str:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "COLUMNS": "100"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)]+)\)", README.read_text()))
def test_links_lead_somewhere(link: str) -> None:
    assert (README.parent / link).exists()


def test_the_python_examples(tmp_path: Path) -> None:
    program = code("python", "export_model(") + code("python", "federate(")
    (tmp_path / "example.py").write_text(program)
    first, second = run(tmp_path, sys.executable, "example.py").splitlines()
    assert re.fullmatch(r"\{'accuracy': 0\.\d+, .*'loss': \d.*, 'examples': 1597.*\}", first)
    assert second.startswith("{'devices': 16, 'weighted_mean': 0.")
    assert (tmp_path / "runs" / "fedper" / "summary.json").exists()


def test_the_strategy_the_model_and_the_experiment(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(code("python", "class Halfway") + code("python", "class Proximal"))
    network = "import keras\n\ndef build(width):\n    layers = [keras.Input((8, 8, 1)), keras.layers.Flatten()]\n"
    network += "    return keras.Sequential([*layers, keras.layers.Dense(width), keras.layers.Dense(10)])\n"
    (tmp_path / "network.py").write_text(network)
    experiment = tmp_path / "my" / "experiment" / "skew.yaml"
    experiment.parent.mkdir(parents=True)
    experiment.write_text(code("yaml", "@package _global_"))
    small = ["run.rounds=1", "backend=serial"]
    (model,) = (line for line in code("sh", "network.build").splitlines() if "network.build" in line)
    (mine,) = re.findall(r"`odt-sim (run strategy\._target_=\S+)`", README.read_text())
    (skew,) = re.findall(r"`odt-sim (run --config-dir my \+experiment=\S+)`", README.read_text())
    odt_sim = str(Path(sys.executable).with_name("odt-sim"))
    assert "Halfway" in run(tmp_path, odt_sim, *mine.split(), *model.split()[2:], *small)
    assert "Proximal" in run(tmp_path, odt_sim, "run", "strategy._target_=mine.Proximal", "model=digits_mlp", *small)
    table = run(tmp_path, odt_sim, *skew.split(), *small, "fleet.unseen=1", "model=digits_mlp")
    assert all(name in table for name in ("local", "fedavg", "fedper", "3 seeds"))


def test_the_suite_of_the_strategy(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(code("python", "class Halfway"))
    (tmp_path / "test_mine.py").write_text(code("python", "class TestHalfway"))
    assert "9 passed" in run(tmp_path, sys.executable, "-m", "pytest", "-q", "test_mine.py")
