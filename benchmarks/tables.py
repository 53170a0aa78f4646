"""Time one training step of a model with a large embedding on LiteRT and in Keras, one thread each.

Both alternate within one run, and the medians of CPU times over all turns are compared. The model has an embedding of
ROWS x 32, of which an example reads four rows, and two Dense layers; a batch has 32 examples.

    python benchmarks/tables.py [--rows 5000 50000] [--optimizers SGD Adam] [--turns 11] [--files FOLDER]

With `--files`, the files that another version of odt_sim wrote to FOLDER with `--keep` take turns, too.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from step import keras_step  # sets the environment of TensorFlow

# isort: split
import keras
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from odt_sim.export import export_model

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "SGD": lambda: keras.optimizers.SGD(0.1),
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "Adam": lambda: keras.optimizers.Adam(0.01),
    "RMSprop": lambda: keras.optimizers.RMSprop(0.01),
    "Adagrad": lambda: keras.optimizers.Adagrad(0.1),
}
STEPS = 3
"""The number of steps per turn."""


def model_of(rows: int) -> Any:
    keras.utils.set_random_seed(1)
    body = [keras.layers.Embedding(rows, 32), keras.layers.Flatten(), keras.layers.Dense(16, activation="relu")]
    return keras.Sequential([keras.Input((4,), dtype="int32"), *body, keras.layers.Dense(10)])


def cpu_seconds(step: Callable[[], Any]) -> float:
    started = time.process_time()
    for _ in range(STEPS):
        step()
    return (time.process_time() - started) / STEPS


def measure(rows: int, name: str, turns: int, folder: Path, others: list[Path]) -> str:
    """Return the output line for a number of rows and an optimizer."""
    path, loss = folder / f"{name}_{rows}.tflite", "sparse_categorical_crossentropy"
    export_model(model_of(rows), path, loss=loss, optimizer=OPTIMIZERS[name](), batch_size=32)
    random = np.random.default_rng(0)
    batch = {"x": random.integers(0, rows, (32, 4)).astype(np.int32), "y": random.integers(0, 10, 32).astype(np.int32)}
    given = {**batch, "sample_weight": np.ones(32, np.float32), "learning_rate": np.float32(0.01)}
    steps = {"Keras": keras_step(model_of(rows), OPTIMIZERS[name](), batch)}
    for own in [path, *(other / path.name for other in others)]:
        train = Interpreter(str(own), num_threads=1).get_signature_runner("train")
        steps[str(own.parent.name)] = lambda train=train: train(**given)
    for step in steps.values():
        cpu_seconds(step)
    times = np.array([[cpu_seconds(step) for step in steps.values()] for _ in range(turns)]) * 1e3
    quartiles = np.quantile(times, [0.25, 0.5, 0.75], 0).T
    found = [f"{engine} {m:.2f} ({a:.2f}..{b:.2f})" for engine, (a, m, b) in zip(steps, quartiles, strict=True)]
    return f"{rows} rows, {name}: CPU ms {', '.join(found)}; file {path.stat().st_size / 1e6:.1f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description="Time a step with a large embedding on LiteRT against Keras.")
    parser.add_argument("--rows", type=int, nargs="+", default=[5000, 50000])
    parser.add_argument("--optimizers", nargs="+", default=list(OPTIMIZERS))
    parser.add_argument("--turns", type=int, default=11)
    parser.add_argument("--keep", type=Path, help="the folder to export to")
    parser.add_argument(
        "--files", type=Path, nargs="*", default=[], help="folders that other versions have exported to"
    )
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for rows in options.rows:
            for name in options.optimizers:
                print(measure(rows, name, options.turns, options.keep or Path(folder), options.files), flush=True)


if __name__ == "__main__":
    main()
