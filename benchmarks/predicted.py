"""Predicted against measured time of a device's round, for each shipped model.

The calls of a file are calibrated in a process of their own, as `fleet.profiles` does. Then a device receives weights, trains
some epochs on random examples, of which the last batch is not full, infers, and hands its weights out; its calls times
their calibrated seconds are compared with the time of the whole. Each model is exported twice: with its own batch size, and
for any number of rows, which is calibrated at a quarter, one and four of its batches and then runs batches of other sizes
(--rows), all of them full, since a change of the number of rows allocates anew. Every round is measured `--turns` times, of
which the median counts. All times are CPU times of one thread, so that other load matters little.

    python benchmarks/predicted.py [MODEL ...] [--epochs 3] [--examples 200] [--rows 0.5 1.5 3] [--turns 5]
"""

import argparse
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
from workload import shipped_file

from odt_sim import Device, TrainableModel, TrainingPlan
from odt_sim.device.runtime_pool import RuntimePool
from odt_sim.fleet.calibration import Calibration, measured
from odt_sim.phone.subject import random_inputs, random_targets

MODELS = (
    "softmax digits_mlp digits_cnn mnist_cnn har_cnn resnet8 mobilenet mobilenet_v2 character_lstm transformer_encoder"
)
RATE = 1e-4


def round_of(model: TrainableModel, examples: int, epochs: int, turns: int) -> tuple[Device, float]:
    """Return a device after its rounds, and the median seconds of one."""
    random, pool = np.random.default_rng(0), RuntimePool(model)
    x, y = random_inputs(model.x, examples, random), random_targets(model, examples, random)
    seconds = []
    for _ in range(turns + 1):
        device = Device(model, (x, y), test=(x, y), pool=pool, plan=TrainingPlan(epochs))
        weights = device.parameters()
        started = time.process_time()
        device.restore(weights)
        device.train(learning_rate=RATE)
        device.infer(x)
        device.parameters()
        seconds.append(time.process_time() - started)
    return device, statistics.median(seconds[1:])  # the first one starts the interpreter


def predicted(calibration: Calibration, device: Device) -> float:
    """Return the seconds that the calls of a device take by calibration."""
    one = np.ones(1)
    total = sum(float(calibration.seconds(name, one)[0]) for name in ("restore", "parameters"))
    for name, calls in device.calls.by_signature.items():
        rows = np.array([device.calls.rows[name]])
        total += float(calibration.seconds(name, np.array([calls]), rows)[0])
    return total


def lines(name: str, options: argparse.Namespace) -> Iterator[tuple[str, float]]:
    """Yield a line of the table, and the ratio in it, for each file and number of rows."""
    fixed = TrainableModel.load(shipped_file(name))
    rounds = [("own batch", fixed, measured(fixed), fixed.batch_size)]
    if not options.fixed:
        free = TrainableModel.load(shipped_file(name, batch_size=None))
        calibration = measured(free)
        for part in options.rows:
            rows = max(1, round(part * free.batch_size))
            rounds.append(
                ("any batch", replace(free, manifest=replace(free.manifest, batch_size=rows)), calibration, rows)
            )
    for kind, model, calibration, rows in rounds:
        examples = options.examples if kind == "own batch" else options.examples // rows * rows or rows
        device, seconds = round_of(model, examples, options.epochs, options.turns)
        guess = predicted(calibration, device)
        yield (
            f"| {name} | {kind} | {rows} | {1e3 * guess:.2f} | {1e3 * seconds:.2f} | {guess / seconds:.2f} |",
            guess / seconds,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare predicted with measured time.")
    parser.add_argument("models", nargs="*", default=MODELS.split())
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--rows", type=float, nargs="+", default=[0.5, 1.5, 3], help="other batch sizes, in batches")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--fixed", action="store_true", help="leave the files for any number of rows out")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}")
    print("| model | file | rows | predicted ms | measured ms | ratio |\n|---|---|---|---|---|---|")
    ratios = []
    for name in options.models:
        for line, ratio in lines(name, options):
            print(line, flush=True)
            ratios.append(ratio)
    near = sum(1 / 1.15 <= ratio <= 1.15 for ratio in ratios)
    print(f"{near} of {len(ratios)} within 15%; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
