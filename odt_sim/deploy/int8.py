"""Static quantization to 8-bit integers, by the package `ai-edge-quantizer`."""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

import numpy as np

from odt_sim._support.text import one_line
from odt_sim.data.store.columns import Rows
from odt_sim.device.batches import padded
from odt_sim.device.engines import quiet
from odt_sim.device.examples import Examples
from odt_sim.device.runtime import inputs_of
from odt_sim.errors import ConfigurationError, ModelError
from odt_sim.model.editing.fully_connected import with_fully_connected
from odt_sim.model.reading.graph_reader import read_graph
from odt_sim.model.trainable import TrainableModel

CALIBRATED = 256
"""The most examples on which ranges of activations are measured; more make no difference worth the time."""


FLOAT = (
    *("INPUT", "OUTPUT"),
    *("ADD", "SUB", "MUL", "DIV", "SQUARED_DIFFERENCE", "MEAN", "SUM", "REDUCE_MIN", "SQRT", "RSQRT"),
    *("LOGISTIC", "TANH", "GELU", "HARD_SWISH", "SOFTMAX", "BATCH_MATMUL"),
    "SPLIT",  # XNNPACK fails to prepare a SPLIT of 8-bit integers
)
"""Ops that stay float32: arithmetic on activations only, which LiteRT's CPU kernels run faster and more exactly so.

Milliseconds per batch in float32, with all ops in int8, and with these in float32: transformer_encoder 0.74, 4.64,
0.66; har_cnn 0.53, 0.80, 0.60; resnet8 13.7, 15.6, 16.5; mobilenet_v2 9.7, 13.3, 13.3 (one thread, AMD EPYC with AVX2).
"""


def quantized(content: bytes, model: TrainableModel, examples: Examples) -> bytes:
    """Return an inference-only file that multiplies weights and activations in 8 bits; inputs and outputs stay float32.

    Args:
        content: The file, with constant float32 weights.
        model: The model of which the file was made.
        examples: The examples on which the ranges of activations are measured.

    Raises:
        ConfigurationError: The package is missing.
        ModelError: The package cannot quantize the file.
    """
    check_installed()
    from ai_edge_quantizer import recipe
    from ai_edge_quantizer.algorithm_manager import AlgorithmName
    from ai_edge_quantizer.calibrator import CalibrationMode
    from ai_edge_quantizer.qtyping import TFLOperationName
    from ai_edge_quantizer.quantizer import Quantizer

    batches = [inputs_of(model, "infer", x) for x in _batches(model, examples)]
    content = with_fully_connected(content)
    with _silent():
        quantizer = Quantizer(content, recipe.static_wi8_ai8())
        in_float32 = {
            TFLOperationName.CONCATENATION: _joined_to_constants(content, model.where),
            TFLOperationName.STRIDED_SLICE: _sliced_arithmetic(content, model.where),
        }
        for kind, names in in_float32.items():
            for name in names:
                quantizer.update_quantization_recipe(f"^{re.escape(name)};?$", kind, None, AlgorithmName.NO_QUANTIZE)
        for name in FLOAT:
            quantizer.update_quantization_recipe(".*", TFLOperationName(name), None, AlgorithmName.NO_QUANTIZE)
        try:
            ranges = quantizer.calibrate(
                {"infer": batches}, num_threads=1, mode=CalibrationMode.CALIBRATION_PROFILER_BASED
            )
            result = quantizer.quantize(ranges, enable_progress_bar=False, enable_progress_report=False)
        except (ValueError, RuntimeError, KeyError, IndexError, NotImplementedError) as error:
            reason = one_line(error) or type(error).__name__
            raise ModelError(
                f"{model.where}: cannot be quantized to int8 ({reason}); leave it out: --format float32 float16"
            ) from error
    return bytes(result.quantized_model)


def _joined_to_constants(content: bytes, where: str) -> list[str]:
    """Return the outputs of concatenations with a constant, such as the padding of a Fourier transform.

    The package applies the scale of the tensor that the output becomes to the constant, and fails if it has more axes.
    """
    return [
        part.tensors[op.outputs[0]].name
        for part in read_graph(content, where).subgraphs
        for op in part.ops
        if op.kind == "CONCATENATION" and any(part.tensors[i].constant for i in op.inputs)
    ]


def _sliced_arithmetic(content: bytes, where: str) -> list[str]:
    """Return the slices of float32 tensors, such as a GRU's gates, which then need no conversions around them.

    Slices of 8-bit products, such as crops between convolutions, would need conversions if they were float32.
    """
    found = []
    for part in read_graph(content, where).subgraphs:
        arithmetic = set[int]()
        for op in part.ops:
            sliced = op.kind == "STRIDED_SLICE" and op.inputs[0] in arithmetic
            if sliced:
                found.append(part.tensors[op.outputs[0]].name)
            if sliced or op.kind in FLOAT:
                arithmetic.update(op.outputs)
    return found


def check_installed() -> None:
    """Check that the package is installed.

    Raises:
        ConfigurationError: It is missing.
    """
    try:
        import ai_edge_quantizer.quantizer  # noqa: F401
    except ImportError as error:
        raise ConfigurationError(
            "format int8: ai-edge-quantizer is missing; run: pip install 'odt_sim[deploy]', or leave it out: "
            "--format float32 float16"
        ) from error


def _batches(model: TrainableModel, examples: Examples) -> Iterator[Rows]:
    """Yield examples, evenly spread, in batches of `infer`."""
    rows = next(iter(model.signatures["infer"].inputs.values())).shape[0]
    size = rows if rows > 0 else model.batch_size
    count = min(len(examples), CALIBRATED)
    x, _ = examples.take(np.linspace(0, len(examples) - 1, count).astype(np.int64))
    for start in range(0, count, size):
        yield padded(x[start : start + size], size)


@contextmanager
def _silent() -> Iterator[None]:
    """Suppress the package's progress bars, and LiteRT's warnings that its calibration is for debugging."""
    with quiet(), redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
