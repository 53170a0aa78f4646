"""What `import odt_sim` gives, and what it costs."""

import json
import subprocess
import sys

import odt_sim

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


def test_the_public_names() -> None:
    design = {"Device", "Simulation", "Strategy", "TrainableModel", "Weights"}
    theirs = {"Fleet", "OdtSimError", "Results", "TrainingPlan"}  # what those take and raise
    assert set(odt_sim.__all__) == design | theirs
    assert len(odt_sim.__all__) == len(design | theirs)
    assert all(getattr(odt_sim, name).__name__ == name for name in odt_sim.__all__)


def test_the_import_is_light() -> None:
    """No framework, no cluster, no plotting: a device process stays small and starts in no time."""
    script = "import json, sys, odt_sim; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    child = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    loaded = set(json.loads(child.stdout))
    assert "ai_edge_litert" in loaded
    assert not loaded & HEAVY
    assert child.stderr == ""


def test_the_exporter_is_imported_only_when_used() -> None:
    script = (
        "import sys, odt_sim.export, odt_sim.export.cache; print('tensorflow' in sys.modules, 'keras' in sys.modules)"
    )
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert child.stdout.split() == ["False", "False"]
