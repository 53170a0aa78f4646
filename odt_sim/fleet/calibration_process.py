"""The subprocess of `odt_sim.fleet.calibration`: `python -m odt_sim.fleet.calibration_process NAME`.

It reads a `.tflite` file from standard input, times its signatures and prints a calibration. A separate process has no
other threads, and its peak memory is that of one interpreter. CPU time is measured, which other load on the machine
changes little; with one thread and no other load, it equals wall-clock time.
"""

import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim._support.system import peak_memory
from odt_sim._support.text import one_line
from odt_sim.device.engines import quiet
from odt_sim.device.runtime import Runtime
from odt_sim.errors import OdtSimError
from odt_sim.fleet.calibration import Calibration, CallTime, this_machine
from odt_sim.model.reading.flatbuffer import Signature, TensorInfo
from odt_sim.model.trainable import TrainableModel

WARM_UP = 3
SECONDS = 0.25
"""The seconds for which a signature is timed with one number of rows."""
FEWEST, MOST = 5, 400
PARTS = (0.25, 1, 4)
"""The measured numbers of rows, in batches, for files that accept any number."""


def measure(content: bytes, where: str) -> Calibration:
    """Time the signatures of a file.

    Raises:
        ModelError: LiteRT cannot run the file.
    """
    model = TrainableModel.from_content(content, where=where)
    before = peak_memory()
    with quiet():
        runtime = Runtime(model)
        calls = {name: _call_time(runtime, name) for name, each in model.signatures.items() if _is_numeric(each)}
    memory = peak_memory() - before + len(content)
    return Calibration(model.fingerprint, this_machine(), calls, memory)


def _is_numeric(signature: Signature) -> bool:
    return all(tensor.dtype != "string" for tensor in (*signature.inputs.values(), *signature.outputs.values()))


def _call_time(runtime: Runtime, name: str) -> CallTime:
    inputs, batch = runtime.model.signatures[name].inputs, runtime.model.batch_size
    features = [tensor for tensor in inputs.values() if _is_feature(tensor.name)]
    if not any(tensor.shape[0] < 0 for tensor in features):
        return CallTime(_seconds(runtime, name, 1), 0.0, features[0].shape[0] if features else 1)
    sizes = sorted({max(1, round(part * batch)) for part in PARTS})
    times = [_seconds(runtime, name, rows) for rows in sizes]
    return CallTime(*_line(np.array(sizes, float), np.array(times)), batch)


def _is_feature(name: str) -> bool:
    return name in ("x", "embedding") or name.startswith("x_")


def _line(rows: NDArray[np.float64], seconds: NDArray[np.float64]) -> tuple[float, float]:
    """Fit a line through times by least squares of the relative errors, and return seconds per call and per row.

    The time per call is negative if large batches exceed the processor's caches and take more than proportional time.
    """
    if len(rows) == 1:
        return float(seconds[0]), 0.0
    design = np.stack([1 / seconds, rows / seconds], axis=1)
    per_call, per_row = np.linalg.lstsq(design, np.ones(len(rows)), rcond=None)[0]
    return (float(per_call), float(per_row)) if per_row > 0 else (float(seconds.mean()), 0.0)


def _seconds(runtime: Runtime, name: str, rows: int) -> float:
    """Return the median seconds of a call on a freshly copied batch, as in a device's calls."""
    random, state = np.random.default_rng(0), _state(runtime)
    tensors = runtime.model.signatures[name].inputs.values()
    inputs = {tensor.name: state.get(tensor.name, _values(tensor, rows, random)) for tensor in tensors}
    taken: list[float] = []
    end = time.process_time() + SECONDS
    while len(taken) < WARM_UP + FEWEST or (time.process_time() < end and len(taken) < MOST):
        batch = {key: array.copy() for key, array in inputs.items()}
        started = time.process_time()
        runtime.call(name, **batch)
        taken.append(time.process_time() - started)
    return float(np.median(taken[WARM_UP:]))


def _state(runtime: Runtime) -> Mapping[str, NDArray[Any]]:
    """Return the inputs of `restore` and `restore_optimizer_state`."""
    weights = {f"a{i}": tensor for i, tensor in enumerate(runtime.initial.tensors())}
    return {**weights, **{f"s{i}": slot for i, slot in enumerate(runtime.initial_slots)}}


def _values(tensor: TensorInfo, rows: int, random: np.random.Generator) -> NDArray[Any]:
    """Return valid inputs: normal features, weights of 1, and labels, masks and step sizes of 0."""
    shape = [rows if size < 0 else size for size in tensor.shape]
    if tensor.name == "sample_weight":
        return np.ones(shape, tensor.dtype)
    if tensor.dtype.startswith("float") and _is_feature(tensor.name):
        return random.normal(size=shape).astype(tensor.dtype)
    return np.zeros(shape, tensor.dtype)


def main() -> int:
    """Print the calibration or the error, and return the exit code."""
    try:
        print(measure(sys.stdin.buffer.read(), sys.argv[1]).to_json())
        return 0
    except OdtSimError as error:
        print(one_line(error), file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
