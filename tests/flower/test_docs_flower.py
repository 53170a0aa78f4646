"""The examples of docs/how-to/flower.md run as they are shown, in one simulation of Flower."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from superlink import QUIET, RUN, processes

from odt_sim.cli.hydra.build import model_file
from odt_sim.cli.hydra.overrides import composed

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "flower.md"


def test_examples_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = re.findall(r"^```python.*?\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    shutil.copy(model_file(composed(["model=digits_mlp"])), tmp_path / "digits.tflite")
    (tmp_path / "fleet.py").write_text(first)
    run = "\n    run_simulation(server, client, num_supernodes=2)"
    (tmp_path / "both.py").write_text(
        f"from fleet import *\n\nimport fleet\n\n{second}\nif __name__ == '__main__':{run}\n"
    )
    environment = {**os.environ, **QUIET, "RAY_ADDRESS": "local"}
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "both.log"
    with processes([[sys.executable, "both.py"]], environment, log) as [process]:
        assert process.wait(RUN) == 0, log.read_text()
    assert "kernel" in log.read_text()  # the names of what travels
