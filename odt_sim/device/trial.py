"""`python -m odt_sim.device.trial NAME SECONDS`: loads the `.tflite` file on standard input; does what devices do, on zeros.

It is the process that may crash: see `odt_sim.model.verification`.
"""

import math
import resource
import sys
import time

import numpy as np

from odt_sim.device.runtime import Array, Runtime
from odt_sim.errors import InvocationError, ModelError
from odt_sim.memory import memory_limit, peak_memory
from odt_sim.model.contract import REQUIRED, answer_of, shape_text
from odt_sim.model.flatbuffer import TensorInfo
from odt_sim.model.optional import ON_EMBEDDINGS, parts_of
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.verification import ACCEPTED, REFUSED

OPTIONAL = ("optimizer_state", "restore_optimizer_state", "set_gradient_offset", *ON_EMBEDDINGS)
LEAST_MEMORY = 2 << 30


def try_out(content: bytes, where: str) -> str:
    """Does with a file what devices do, once.

    Args:
        content: The file's bytes.
        where: The file's name, for the error.

    Returns:
        The file's fingerprint.

    Raises:
        ModelError: The file is no trainable model, or LiteRT cannot load or run it.
    """
    model = TrainableModel.from_content(content, where=where)
    runtime = Runtime(model)
    for name, signature in model.signatures.items():
        if name in (*REQUIRED, *OPTIONAL) or (name.startswith("train_") and parts_of(name.removeprefix("train_"))):
            given = {key: _zeros(tensor, model.batch_size) for key, tensor in signature.inputs.items()}
            found = runtime.call(name, **given)
            if name == "infer":
                _check_rows(found[answer_of(signature).name], len(given["x"]), where)
    return model.fingerprint


def _check_rows(answer: Array, rows: int, where: str) -> None:
    if answer.shape[:1] != (rows,):
        raise ModelError(f"{where}: 'infer' answers {rows} examples with {shape_text(answer.shape)}; export it again")


def _zeros(tensor: TensorInfo, rows: int) -> Array:
    return np.zeros([size if size >= 0 else rows for size in tensor.shape], tensor.dtype)


def confine(seconds: float) -> int:
    """Takes from this process the right to write files, to the last quarter of the memory, and to more time.

    Args:
        seconds: Of the processor's time, from now on.

    Returns:
        The bytes of memory that it may have.
    """
    memory = max(memory_limit() * 3 // 4, LEAST_MEMORY)
    for kind, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, math.ceil(time.process_time() + seconds)),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    return memory


def main(content: bytes, where: str, seconds: float) -> int:
    """Returns the exit code; a line on standard output says how much memory it took, or why the file is refused."""
    memory = f"{confine(seconds) / 1e9:.0f} GB of memory"
    try:
        try_out(content, where)
        print(peak_memory())
        return ACCEPTED
    except InvocationError as error:  # LiteRT seldom says that it lacked memory
        why = f"{error}; it had {memory} here, export it again, or with a smaller batch_size"
    except ModelError as error:
        why = str(error)
    except MemoryError as error:
        why = (
            f"{where}: needs more than {memory} ({error}); use a larger machine, or export it with a smaller batch_size"
        )
    except Exception as error:  # nothing that a file can cause is a bug of its user's
        why = f"{where}: damaged .tflite file ({type(error).__name__}: {error}); export it again"
    print(" ".join(why.split()))
    return REFUSED


if __name__ == "__main__":
    sys.exit(main(sys.stdin.buffer.read(), sys.argv[1], float(sys.argv[2])))
