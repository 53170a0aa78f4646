"""The subprocess of `flex.py`, and the messages between the two.

It runs as a script in an environment that has numpy and TensorFlow 2.19, but neither odt_sim nor LiteRT. A message is the
length of a JSON header as 8 bytes, the header, and the arrays' bytes one after the other.
"""

import json
import os
from contextlib import suppress
from typing import Any, BinaryIO

import numpy as np

Arrays = dict[str, Any]
Message = tuple[dict[str, Any], Arrays]


def write_message(stream: Any, header: dict[str, Any], arrays: Arrays) -> None:
    """Write a header and arrays of numbers or bytes."""
    arrays = {name: np.asarray(value, order="C") for name, value in arrays.items()}
    described = [[name, array.dtype.str, array.shape] for name, array in arrays.items()]
    text = json.dumps({**header, "arrays": described}).encode()
    stream.write(len(text).to_bytes(8, "little") + text)
    for array in arrays.values():
        stream.write(array.tobytes())
    stream.flush()


def read_message(stream: Any) -> Message:
    """Return a header and its arrays.

    Raises:
        EOFError: The other side has ended.
    """
    header = json.loads(_exactly(stream, int.from_bytes(_exactly(stream, 8), "little")))
    arrays = {}
    for name, dtype, shape in header.pop("arrays"):
        kind = np.dtype(dtype)
        content = _exactly(stream, kind.itemsize * int(np.prod(shape, dtype=np.int64)))
        arrays[name] = (
            np.frombuffer(bytearray(content), kind).reshape(shape) if kind.itemsize else np.zeros(shape, kind)
        )
    return header, arrays


def _exactly(stream: Any, count: int) -> bytes:
    content: bytes = stream.read(count)
    if len(content) < count:
        raise EOFError("the other process has exited")
    return content


def main() -> None:
    """Answer questions until the other side ends."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keep TensorFlow's prints out of the answers
    try:
        import tensorflow

        server = _Server(tensorflow)
    except Exception as error:
        write_message(answers, {"error": _one_line(error)}, {})
        return
    with suppress(EOFError, OSError):
        while True:
            _answer(server, *read_message(questions), answers)
    os._exit(0)  # Python's own exit takes seconds with TensorFlow


def _answer(server: "_Server", question: dict[str, Any], arrays: Arrays, answers: BinaryIO) -> None:
    try:
        header, outputs = server.answer(question, arrays)
    except Exception as error:  # the other side reports whatever TensorFlow raises
        by_inputs = isinstance(error, ValueError | KeyError | TypeError)
        header, outputs = {"error": _one_line(error), "by_inputs": by_inputs}, {}
    write_message(answers, header, outputs)


class _Server:
    """Interpreters by number."""

    def __init__(self, tensorflow: Any) -> None:
        self._tensorflow = tensorflow
        self._interpreters: dict[int, Any] = {}
        self._runners: dict[tuple[int, str], Any] = {}
        self._count = 0

    def answer(self, question: dict[str, Any], arrays: Arrays) -> Message:
        for number in question.get("drop", ()):
            self._interpreters.pop(number, None)
            self._runners = {key: runner for key, runner in self._runners.items() if key[0] != number}
        if question["do"] == "hello":
            return {"tensorflow": self._tensorflow.__version__}, {}
        if question["do"] == "load":
            return self._load(arrays["content"].tobytes()), {}
        return {}, self._call(question["number"], question["signature"], arrays)

    def _load(self, content: bytes) -> dict[str, Any]:
        self._count += 1
        self._interpreters[self._count] = self._tensorflow.lite.Interpreter(model_content=content, num_threads=1)
        return {"number": self._count}

    def _call(self, number: int, signature: str, arrays: Arrays) -> Arrays:
        runner = self._runners.get((number, signature))
        if runner is None:
            runner = self._interpreters[number].get_signature_runner(signature)
            self._runners[number, signature] = runner
        outputs = runner(**arrays)
        return {name: _plain(value) for name, value in outputs.items()}


def _plain(value: Any) -> Any:
    """Return an array without Python objects; TensorFlow returns strings as objects."""
    array = np.asarray(value)
    return array.astype(np.bytes_) if array.dtype == object else array


def _one_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


if __name__ == "__main__":
    main()
