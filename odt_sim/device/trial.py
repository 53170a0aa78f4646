"""`python -m odt_sim.device.trial NAME SECONDS`: loads the `.tflite` file on standard input; does what devices do, on zeros.

It is the process that may crash: see `odt_sim.model.verification`.
"""

import math
import os
import resource
import sys
import time

import numpy as np

from odt_sim.device.runtime import Array, Runtime
from odt_sim.errors import ModelError
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


def confine(seconds: float) -> None:
    """Takes from this process the right to write files, to more memory than a quarter of the machine's, and to more time.

    Args:
        seconds: Of the processor's time, from now on.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    for kind, most in (
        (resource.RLIMIT_AS, max(memory, LEAST_MEMORY)),
        (resource.RLIMIT_CPU, math.ceil(time.process_time() + seconds)),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def main(content: bytes, where: str, seconds: float) -> int:
    """Returns the exit code; where the file is refused, one line on standard output says why."""
    confine(seconds)
    try:
        try_out(content, where)
    except ModelError as error:
        print(" ".join(str(error).split()))
        return REFUSED
    except Exception as error:  # nothing that a file can cause is a bug of its user's
        print(
            f"{where}: damaged .tflite file ({' '.join(f'{type(error).__name__}: {error}'.split())}); export it again"
        )
        return REFUSED
    return ACCEPTED


if __name__ == "__main__":
    sys.exit(main(sys.stdin.buffer.read(), sys.argv[1], float(sys.argv[2])))
