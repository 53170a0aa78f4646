"""The cost of `import odt_sim`."""

import json
import subprocess
import sys

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
    assert "ai_edge_litert" in loaded
    assert not loaded & HEAVY
    assert child.stderr == ""


def test_exporter_is_imported_only_when_used() -> None:
    script = (
        "import sys, odt_sim.export, odt_sim.export.cache; print('tensorflow' in sys.modules, 'keras' in sys.modules)"
    )
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert child.stdout.split() == ["False", "False"]
