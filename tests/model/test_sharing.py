"""Equal constants of a `.tflite` file."""

import numpy as np
import pytest

from odt_sim.model.editing.tree import add_buffer, packed, unpacked, with_shared_constants
from odt_sim.model.reading.flatbuffer import read


def with_constants(content: bytes, *arrays: np.ndarray) -> bytes:
    """Replace the data of as many tensors of a file by these arrays."""
    model = unpacked(content)
    tensors = (tensor for subgraph in model.subgraphs for tensor in subgraph.tensors)
    constant = (tensor for tensor in tensors if model.buffers[tensor.buffer].data is not None)
    for array, tensor in zip(arrays, constant, strict=False):
        tensor.buffer = add_buffer(model, array)
    return packed(model)


def held(content: bytes, array: np.ndarray) -> int:
    """Return the number of buffers that contain an array."""
    buffers = unpacked(content).buffers
    return sum(buffer.data is not None and buffer.data.tobytes() == array.tobytes() for buffer in buffers)


def constants(content: bytes) -> list[bytes]:
    """Return the data of all tensors with data."""
    model = unpacked(content)
    buffers = [model.buffers[tensor.buffer] for subgraph in model.subgraphs for tensor in subgraph.tensors]
    return [buffer.data.tobytes() for buffer in buffers if buffer.data is not None]


def test_large_equal_constants_share_a_buffer(plain: bytes) -> None:
    large = np.arange(10_000, dtype=np.float32)
    twice = with_constants(plain, large, large)
    once = with_shared_constants(twice)
    assert (held(twice, large), held(once, large)) == (2, 1)
    assert len(twice) - len(once) == pytest.approx(large.nbytes, abs=100)
    assert constants(once) == constants(twice)
    assert read(once, "once").signatures == read(plain, "plain").signatures


def test_small_equal_constants_leave_the_file_as_it_is(plain: bytes) -> None:
    small = np.arange(10, dtype=np.float32)
    content = with_constants(plain, small, small)
    assert with_shared_constants(content) is content


def test_metadata_keep_their_buffer(plain: bytes) -> None:
    large = np.arange(10_000, dtype=np.float32)
    model = unpacked(with_constants(plain, large, large))
    model.metadata[0].buffer = add_buffer(model, large)
    shared = unpacked(with_shared_constants(packed(model)))
    assert shared.buffers[shared.metadata[0].buffer].data.tobytes() == large.tobytes()
