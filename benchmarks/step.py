"""Time one training step of the exported model on LiteRT and of the Keras model as a `tf.function`, one thread each.

Both alternate within one run, so that other load affects both alike. A turn repeats steps on one batch for about
`--seconds`; medians over all turns are compared. The output also contains the file's size, the seconds of the export,
and the memory of an additional live interpreter that has trained.

    python benchmarks/step.py [MODEL ...] [--turns 15] [--seconds 0.2]

A MODEL is the name of a file in `conf/model` without `.yaml`; the default is a list of ten Keras models.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1", KERAS_BACKEND="tensorflow")

import keras
import numpy as np
import psutil
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from hydra.utils import get_method
from omegaconf import OmegaConf

from odt_sim.export.__main__ import export_spec

MODELS = Path(__file__).resolve().parents[1] / "conf" / "model"
DEFAULT = (
    "softmax digits_mlp digits_cnn mnist_cnn har_cnn resnet8 mobilenet mobilenet_v2 character_lstm transformer_encoder"
)
INTERPRETERS = 4


def batch_of(interpreter: Interpreter, classes: int) -> dict[str, Any]:
    """Return random inputs and labels for `train`."""
    random = np.random.default_rng(0)
    x, y = (interpreter.get_signature_runner("train").get_input_details()[name] for name in ("x", "y"))
    words = x["dtype"] == np.int32
    values = random.integers(0, 50, x["shape"]) if words else random.normal(size=x["shape"])
    return {
        "x": values.astype(x["dtype"]),
        "y": random.integers(0, classes, y["shape"]).astype(y["dtype"]),
        "sample_weight": np.ones(x["shape"][0], np.float32),
        "learning_rate": np.float32(0.01),
    }


def keras_step(model: Any, optimizer: Any, batch: dict[str, Any]) -> Callable[[], Any]:
    """Return a training step of Keras as a graph without XLA."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer.build(model.trainable_variables)
    x, y = tf.constant(batch["x"]), tf.constant(batch["y"])

    @tf.function(jit_compile=False, autograph=False)
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return value

    return lambda: step(x, y).numpy()


def seconds_of(step: Callable[[], Any], times: int) -> float:
    started = time.perf_counter()
    for _ in range(times):
        step()
    return (time.perf_counter() - started) / times


def memory_of(path: Path, batch: dict[str, Any]) -> float:
    """Return the memory of an additional live interpreter that has trained, in MB."""
    process, alive = psutil.Process(), []
    before = process.memory_info().rss
    for _ in range(INTERPRETERS):
        alive.append(Interpreter(str(path), num_threads=1))
        alive[-1].get_signature_runner("train")(**batch)
    return float(process.memory_info().rss - before) / INTERPRETERS / 1e6


def measure(name: str, turns: int, seconds: float, path: Path) -> str:
    """Return the output line of one model."""
    node = OmegaConf.to_container(OmegaConf.load(MODELS / f"{name}.yaml"))
    assert isinstance(node, dict)
    started = time.perf_counter()
    export_spec({str(key): value for key, value in node.items()}, path)
    exported = time.perf_counter() - started
    build = dict(node["build"])
    model = get_method(build.pop("_target_"))(**build)
    optimizer = dict(node["optimizer"])
    optimizer = keras.optimizers.get({"class_name": optimizer.pop("name"), "config": optimizer})
    interpreter = Interpreter(str(path), num_threads=1)
    batch = batch_of(interpreter, model.output_shape[-1])
    train = interpreter.get_signature_runner("train")
    steps = {"LiteRT": lambda: train(**batch), "TensorFlow": keras_step(model, optimizer, batch)}
    counts = {}
    for engine, step in steps.items():
        seconds_of(step, 3)
        counts[engine] = max(1, round(seconds / seconds_of(step, 3)))
    times = np.array([[seconds_of(step, counts[engine]) for engine, step in steps.items()] for _ in range(turns)])
    lite, keras_seconds = np.median(times, axis=0)
    low, ratio, high = np.quantile(times[:, 1] / times[:, 0], [0.25, 0.5, 0.75])
    return (
        f"{name:20s} batch {len(batch['x']):3d}: LiteRT {lite * 1e3:8.3f} ms, TensorFlow {keras_seconds * 1e3:8.3f} ms, "
        f"speed {ratio:.2f} (quartiles {low:.2f}..{high:.2f}); file {path.stat().st_size / 1e3:.0f} kB, "
        f"one more interpreter {memory_of(path, batch):.1f} MB, export {exported:.1f} s; load {os.getloadavg()[0]:.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Time one training step on LiteRT against TensorFlow.")
    parser.add_argument("models", nargs="*", default=DEFAULT.split())
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.2, help="about how long one turn is")
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            print(measure(name, options.turns, options.seconds, Path(folder) / f"{name}.tflite"), flush=True)


if __name__ == "__main__":
    main()
