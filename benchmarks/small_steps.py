"""Training steps of small models: several steps per call compared with one step per call.

A device trains on 960 random examples for 10 epochs per turn, with the interpreter used in runs and with one that has
only single steps. The two take turns, so that other load affects both alike. The output is the median CPU time of a
step, including the device's own work, and the median and quartiles of the turns' ratios.

    python benchmarks/small_steps.py [MODEL ...] [--turns 21]
"""

import argparse
import time

import numpy as np
from rich.console import Console
from rich.table import Table
from workload import shipped_file

from odt_sim import Device, TrainableModel, TrainingPlan
from odt_sim.device.runtime_pool import RuntimePool

MODELS = ("softmax", "digits_mlp", "har_cnn")
EXAMPLES, EPOCHS = 960, 10


def seconds_of(device: Device) -> float:
    """Return the CPU time of a step."""
    started = time.process_time()
    steps = len(device.train())
    return (time.process_time() - started) / steps


def turns_of(model: TrainableModel, turns: int) -> np.ndarray:
    """Return `[turns, 2]`: the CPU time of a step with single steps, and with several steps per call."""
    random = np.random.default_rng(0)
    x = random.normal(size=(EXAMPLES, *model.x.shape[1:])).astype(np.float32)
    y = random.integers(0, model.output.shape[-1], EXAMPLES)
    pools = (RuntimePool(model, edits=False), RuntimePool(model))
    devices = [Device(model, (x, y), plan=TrainingPlan(EPOCHS, 0.01), pool=pool) for pool in pools]
    for device in devices:
        device.train()
    return np.array([[seconds_of(device) for device in devices] for _ in range(turns)])


def main() -> None:
    """Print a table of all models."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    parser.add_argument("--turns", type=int, default=21)
    given = parser.parse_args()
    table = Table("model, batch", "single, µs", "several, µs", "speed, single = 1 (quartiles)")
    for name in given.models:
        model = TrainableModel.load(shipped_file(name))
        times = turns_of(model, given.turns)
        low, middle, high = np.quantile(times[:, 0] / times[:, 1], [0.25, 0.5, 0.75])
        single, several = 1e6 * np.median(times, 0)
        ratio = f"{middle:.2f} ({low:.2f} to {high:.2f})"
        table.add_row(f"{name}, {model.batch_size}", f"{single:.1f}", f"{several:.1f}", ratio)
    Console().print(table)


if __name__ == "__main__":
    main()
