"""Predicted and measured time of a device's round, for each shipped model.

The calls of a file are calibrated in a separate process, as with `fleet.profiles`. Then a device receives weights,
trains on random examples with an incomplete last batch, infers, and returns its weights. The prediction is the sum of
its calls' calibrated times; it is compared with the time of these calls in the interpreter.

Each model is exported twice: with its own batch size, and for any number of rows. The latter is calibrated at a
quarter, one and four times its batch size. It then runs full batches of other sizes (--rows), since a change of the
number of rows reallocates tensors. For each signature and number of rows, the median of the calls over `--turns` rounds
is used. All times are CPU times of one thread, so that other load matters little.

    python benchmarks/predicted.py [MODEL ...] [--epochs 1] [--examples 200] [--rows 0.5 1.5 3] [--turns 12]
"""

import argparse
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
from workload import shipped_file

from odt_sim import Device, TrainableModel, TrainingPlan
from odt_sim.device.engines import LITERT
from odt_sim.device.random import random_rows
from odt_sim.device.runtime_pool import RuntimePool
from odt_sim.fleet.calibration import Calibration, measured

MODELS = (
    "softmax digits_mlp digits_cnn mnist_cnn har_cnn resnet8 mobilenet mobilenet_v2 character_lstm transformer_encoder"
)
RATE = 1e-4


class TimedEngine:
    """An interpreter that records the time of its calls, by signature and number of rows."""

    taken: ClassVar[dict[tuple[str, int], list[float]]] = {}

    def __init__(self, content: bytes, where: str) -> None:
        self._engine = LITERT(content, where)

    def call(self, signature: str, **inputs: Any) -> dict[str, Any]:
        started = time.process_time()
        outputs = self._engine.call(signature, **inputs)
        rows = len(inputs["x"]) if "x" in inputs else 0
        self.taken.setdefault((signature, rows), []).append(time.process_time() - started)
        return outputs


def round_of(model: TrainableModel, examples: int, epochs: int, turns: int) -> tuple[Device, float]:
    """Return a device after a round, and the seconds of its calls."""
    random, pool = np.random.default_rng(0), RuntimePool(model, start=TimedEngine, edits=False)
    x, y = random_rows(model, random, examples)
    for turn in range(turns + 1):
        if turn == 1:  # the first turn starts the interpreter
            TimedEngine.taken.clear()
        device = Device(model, (x, y), pool=pool, plan=TrainingPlan(epochs))
        device.restore(device.parameters())
        device.train(learning_rate=RATE)
        device.infer(x)
        device.parameters()
        device.release()
    return device, sum(len(each) / turns * statistics.median(each) for each in TimedEngine.taken.values())


def predicted(calibration: Calibration, device: Device) -> float:
    """Return the seconds of a device's calls that the calibration predicts."""
    one = np.ones(1)
    total = sum(float(calibration.seconds(name, one)[0]) for name in ("restore", "parameters"))
    for name, calls in device.calls.by_signature.items():
        rows = np.array([device.calls.rows[name]])
        total += float(calibration.seconds(name, np.array([calls]), rows)[0])
    return total


def lines(name: str, options: argparse.Namespace) -> Iterator[tuple[str, float]]:
    """Yield a line of the table and its ratio for each file and number of rows."""
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
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--rows", type=float, nargs="+", default=[0.5, 1.5, 3], help="other batch sizes, in batches")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--fixed", action="store_true", help="leave the files for any number of rows out")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}")
    print("| model | file | rows | predicted ms | measured ms | ratio |\n|---|---|---|---|---|---|")
    ratios = []
    for name in options.models:
        for line, ratio in lines(name, options):
            print(line, flush=True)
            ratios.append(ratio)
    near = sum(abs(ratio - 1) <= 0.15 for ratio in ratios)
    print(f"{near} of {len(ratios)} within 15%; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
