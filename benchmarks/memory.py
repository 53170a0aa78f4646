"""The memory of a device and the time of `import odt_sim`.

    python benchmarks/memory.py

The measurements are made in separate processes:

- the resident memory of a process with one `Device` of the digits model after training and evaluation,
- the resident memory of each Ray actor after two rounds and an evaluation of the demo's fleet,
- the large packages that these processes import,
- the time of `import odt_sim`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from workload import shipped_model

LARGE = (
    "tensorflow",
    "keras",
    "ray",
    "sklearn",
    "scipy",
    "pandas",
    "pyarrow",
    "matplotlib",
    "hydra",
    "omegaconf",
    "rich",
)
MEGABYTE = 1 << 20

IMPORT = """
import sys, time
start = time.perf_counter()
import odt_sim
print(time.perf_counter() - start, *sys.modules)
"""

DEVICE = """
import sys
import numpy as np
import psutil
from odt_sim import Device, TrainableModel
arrays = np.load(sys.argv[2])
device = Device(TrainableModel.load(sys.argv[1]), (arrays["x"], arrays["y"]), test=(arrays["x_test"], arrays["y_test"]))
device.train(epochs=5, learning_rate=0.1)
device.evaluate()
print(psutil.Process().memory_info().rss, *sys.modules)
"""

ACTORS = """
import json, os, sys
from pathlib import Path
import psutil
from workload import shipped_model
from odt_sim import Simulation, Fleet
from odt_sim.data.devices.federated import federate
from odt_sim.data.devices.partition import dirichlet
from odt_sim.data.sources.builtin import digits
from odt_sim.simulation.executors.ray import RayBackend
from odt_sim.strategies.averaging.fedavg import FedAvg

folder = Path(sys.argv[1])

class Observed(FedAvg):
    def deploy(self, device, broadcast):
        memory = psutil.Process().memory_full_info()
        state = {"rss": memory.rss, "own": memory.uss, "modules": list(sys.modules)}
        (folder / f"{os.getpid()}.actor").write_text(json.dumps(state))
        return super().deploy(device, broadcast)

data = federate(digits(), lambda *a: dirichlet(*a, alpha=0.3, min_examples=10), 20, 0)
Simulation(shipped_model("digits_cnn"), data, Observed(), rounds=2, directory=folder / "run", fleet=Fleet(),
           backend=RayBackend(), evaluate_every=1).run()
"""


def child(code: str, *arguments: str) -> list[str]:
    """Run a program in a subprocess and return the words that it prints."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "OPENBLAS_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, "-c", code, *arguments], env=environment, stdout=subprocess.PIPE, check=True)
    return run.stdout.decode().split()


def large(modules: list[str]) -> str:
    """Return the large packages among the modules."""
    return ", ".join(name for name in LARGE if name in modules) or "none"


def imports(repetitions: int) -> None:
    runs = [child(IMPORT) for _ in range(repetitions)]
    seconds = sorted(float(run[0]) for run in runs)
    spread = f"{seconds[0]:.2f}..{seconds[-1]:.2f}"
    print(f"import odt_sim: median {np.median(seconds):.2f} s ({spread}); large packages: {large(runs[0])}")


def device(folder: Path) -> None:
    from odt_sim.data.sources.builtin import digits

    data = digits()
    path = folder / "device.npz"
    np.savez(path, x=data.x[:60], y=data.y[:60], x_test=data.x[60:80], y_test=data.y[60:80])
    (folder / "model.tflite").write_bytes(shipped_model("digits_cnn").content)
    rss, *modules = child(DEVICE, str(folder / "model.tflite"), str(path))
    print(f"plain process, one device of digits_cnn: {int(rss) / MEGABYTE:.0f} MB; large packages: {large(modules)}")


def actors(folder: Path) -> None:
    child(ACTORS, str(folder))
    found: list[dict[str, Any]] = [json.loads(path.read_text()) for path in folder.glob("*.actor")]
    for actor in found:
        own = f"{actor['own'] / MEGABYTE:.0f} MB of its own"
        print(f"Ray actor: {actor['rss'] / MEGABYTE:.0f} MB, {own}; large packages: {large(actor['modules'])}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what devices cost in memory, and what importing costs.")
    parser.add_argument("--repetitions", type=int, default=5, help="of the import")
    options = parser.parse_args()
    imports(options.repetitions)
    with tempfile.TemporaryDirectory() as folder:
        device(Path(folder))
        actors(Path(folder))


if __name__ == "__main__":
    main()
