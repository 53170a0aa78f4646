"""The cost of `import odt_sim`, and the content of an installation."""

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from zipfile import ZipFile

import pytest

import odt_sim
from odt_sim.model.trainable import TrainableModel

ROOT = Path(__file__).parent.parent

HEAVY = {
    "tensorflow",
    "keras",
    "ray",
    "hydra",
    "omegaconf",
    "pandas",
    "pyarrow",
    "matplotlib",
    "sklearn",
    "rich",
    "torch",
    "jax",
    "dp_accounting",
}


def test_import_is_light() -> None:
    script = "import json, sys, odt_sim; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    child = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    loaded = set(json.loads(child.stdout))
    assert not loaded & {"ai_edge_litert", "numpy", "scipy", *HEAVY}
    assert child.stderr == ""


def test_names_of_the_package_are_light() -> None:
    script = (
        "import json, sys, odt_sim; odt_sim.strategies.FedAvg; from odt_sim import *;"
        "assert set(odt_sim.__all__) <= set(dir(odt_sim)) & set(globals());"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    child = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    loaded = set(json.loads(child.stdout))
    assert "ai_edge_litert" in loaded
    assert not loaded & HEAVY


def test_make_refuses_another_python_before_it_creates_an_environment(tmp_path: Path) -> None:
    (tmp_path / "constraints.txt").touch()
    (tmp_path / "python").write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'import sys; sys.version_info = (3, 14); exec(sys.argv[1])' \"$2\"\n"
    )
    (tmp_path / "python").chmod(0o755)
    command = ["make", "--makefile", str(ROOT / "Makefile"), "PYTHON=./python", ".venv/bin/uv"]
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    child = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert child.stderr.startswith("expected Python 3.11 to 3.13, found 3.14; choose another: make PYTHON=python3.13")
    assert not (tmp_path / ".venv").exists()


def test_package_lists_what_a_user_needs() -> None:
    names = {name for name in dir(odt_sim) if not name.startswith("_")}
    assert {*odt_sim.__all__, "data", "strategies"} <= names
    assert not [name for name in names if not hasattr(odt_sim, name)]
    assert not {"find_spec", "import_module"} & names
    assert odt_sim.__version__ == version("odt_sim")


def test_unknown_name_of_the_package_is_an_attribute_error() -> None:
    assert not hasattr(odt_sim, "Simulations")
    with pytest.raises(ImportError, match="cannot import name 'Simulations'"):
        exec("from odt_sim import Simulations")


def test_exporter_is_imported_only_when_used() -> None:
    script = (
        "import sys, odt_sim.export, odt_sim.export.cache; print('tensorflow' in sys.modules, 'keras' in sys.modules)"
    )
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert child.stdout.split() == ["False", "False"]


@pytest.mark.slow  # builds a wheel
def test_wheel_holds_every_file_of_the_package(tmp_path: Path) -> None:
    without_builds = shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__", "tests", "outputs")
    copy = shutil.copytree(ROOT, tmp_path / "copy", symlinks=True, ignore=without_builds)
    options = ["--quiet", "--no-deps", "--no-build-isolation"]  # setuptools is there, since TensorFlow needs it
    pip = [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", tmp_path, copy]
    subprocess.run(pip, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    package = copy / "odt_sim"
    folders = {package: "odt_sim", package / "conf": "odt_sim/conf"}
    files = {
        f"{name}/{path.relative_to(folder).as_posix()}"
        for folder, name in folders.items()
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert "odt_sim/conf/config.yaml" in files
    assert files <= set(ZipFile(wheel).namelist())


def test_inspect_is_light(softmax: TrainableModel) -> None:
    """It prints the strategies that a file supports without importing Hydra or the simulation."""
    script = (
        "import sys; from pathlib import Path; from odt_sim.cli.commands.inspect import print_model;"
        "print_model(Path(sys.argv[1]));"
        "print(sorted({'hydra', 'omegaconf', 'odt_sim.simulation.run.coordinator'} & {*sys.modules}))"
    )
    child = subprocess.run([sys.executable, "-c", script, softmax.where], capture_output=True, text=True, check=True)
    assert "strategies: afl, " in child.stdout
    assert child.stdout.splitlines()[-1] == "[]"


def test_completion_script_is_light() -> None:
    """Each new shell prints it."""
    script = (
        "import sys; from odt_sim.cli.commands.completion import completion;"
        "completion(['bash']); completion(['--query', 'odt-sim in']);"
        "print(sorted({'hydra', 'numpy', 'omegaconf'} & {*sys.modules}))"
    )
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert child.stdout.splitlines()[-2:] == ["inspect", "[]"]


def test_mistake_in_a_run_is_found_before_the_simulation_is_imported() -> None:
    script = (
        "import sys; from odt_sim.cli.main import main; print(main(['run', 'strategy=fedvag']));"
        "print(sorted({'odt_sim.simulation.run.coordinator', 'odt_sim.model.trainable', 'rich'} & {*sys.modules}))"
    )
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert child.stdout.splitlines() == ["1", "[]"]
    assert "error: strategy=fedvag: no such option; did you mean fedavg?" in child.stderr
