"""The subprocess of `odt_sim.model.reading.verification`: `python -m odt_sim.device.verification_process NAME SECONDS`.

It reads a `.tflite` file from standard input and runs all signatures that devices call, on zeros. It may crash.
"""

import gc
import math
import resource
import sys
import time

import numpy as np

from odt_sim._support.system import end, memory_limit, peak_memory
from odt_sim._support.text import one_line
from odt_sim.device.runtime import Runtime
from odt_sim.errors import InvocationError, ModelError
from odt_sim.model.contract.signatures import OPTIONAL, REQUIRED, answers_of, parts_of, shape_text
from odt_sim.model.reading.verification import ACCEPTED, FAILED, REFUSED
from odt_sim.model.trainable import TrainableModel

LEAST_MEMORY = 2 << 30


def call_signatures(content: bytes, where: str) -> str:
    """Call every signature of the contract once and return the file's fingerprint.

    Args:
        content: The file's bytes.
        where: The file's name, for errors.

    Raises:
        ModelError: The file is not a trainable model, or LiteRT cannot load or run it.
    """
    model = TrainableModel.from_content(content, where=where)
    runtime = Runtime(model)
    for name, signature in model.signatures.items():
        if name in (*REQUIRED, *OPTIONAL) or (name.startswith("train_") and parts_of(name.removeprefix("train_"))):
            inputs = {
                key: np.zeros([size if size >= 0 else model.batch_size for size in tensor.shape], tensor.dtype)
                for key, tensor in signature.inputs.items()
            }
            outputs = runtime.call(name, **inputs)
            if name == "infer":
                rows = len(next(iter(inputs.values())))
                for answer in answers_of(signature).values():
                    shape = outputs[answer.name].shape
                    if shape[:1] != (rows,):
                        raise ModelError(
                            f"{where}: 'infer' returns {shape_text(shape)} for {rows} examples; expected one row for each; "
                            "export it again"
                        )
    return model.fingerprint


def limit_resources(seconds: float) -> int:
    """Limit this process to `seconds` of CPU time and three quarters of the memory, without writing files.

    On macOS, memory stays unlimited.

    Returns:
        The memory limit in bytes.
    """
    memory = max(memory_limit() * 3 // 4, LEAST_MEMORY)
    for kind, limit in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, math.ceil(time.process_time() + seconds)),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        if kind == resource.RLIMIT_AS and sys.platform != "linux":
            continue
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    return memory


def main(content: bytes, where: str, seconds: float) -> int:
    """Print the peak memory in bytes, or why the file is refused; return the exit code."""
    memory, code = f"{limit_resources(seconds) / 1e9:.0f} GB of memory", REFUSED
    try:
        call_signatures(content, where)
        print(peak_memory())
        return ACCEPTED
    except InvocationError as error:  # LiteRT rarely reports a lack of memory as such
        reason = f"{error}; it ran with {memory}; export it again, or with a smaller batch_size"
        code = FAILED
    except ModelError as error:
        reason = str(error)
    except MemoryError as error:
        reason = (
            f"{where}: needs more than {memory} ({error}); use a larger machine, or export it with a smaller batch_size"
        )
    except Exception as error:  # a damaged file may cause any exception
        reason = f"{where}: damaged .tflite file ({type(error).__name__}: {error}); export it again"
    print(one_line(reason))
    return code


if __name__ == "__main__":
    gc.disable()  # the graph has many small objects, and the process ends soon
    end(main(sys.stdin.buffer.read(), sys.argv[1], float(sys.argv[2])))
