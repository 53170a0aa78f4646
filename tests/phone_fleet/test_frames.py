"""Frames: the messages between a phone and a run."""

import json
import struct

import numpy as np
import pytest

from odt_sim.errors import DataError
from odt_sim.phone.frames import Message, decode, encode

TENSORS = {
    "losses": np.array([0.5, np.nan, -2], np.float32),
    "rows": np.arange(6, dtype=np.int32).reshape(2, 3),
    "pixels": np.array([[1], [255]], np.uint8),
    "rate": np.array(0.25, np.float32),
    "none": np.zeros((0, 4), np.float32),
}


def frame(header: object) -> bytes:
    text = json.dumps(header).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    return b"odt1" + struct.pack("<I", len(text)) + text


def test_decoded_message_equals_the_encoded_one() -> None:
    found = decode(encode(Message({"do": "train", "id": 3, "name": "é"}, TENSORS)))
    assert found.header == {"do": "train", "id": 3, "name": "é"}
    assert found.tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert found.tensors[name].dtype == tensor.dtype
        assert found.tensors[name].shape == tensor.shape
        np.testing.assert_array_equal(found.tensors[name], tensor)


def test_data_is_little_endian_and_padded_to_8_bytes() -> None:
    encoded = encode(Message({"do": "x"}, {"a": np.array([1], ">i4"), "b": np.array([2], np.uint8)}))
    [length] = struct.unpack("<I", encoded[4:8])
    assert length % 8 == 0
    assert encoded[8 + length :] == b"\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0"


def test_other_dtypes_are_not_encoded() -> None:
    with pytest.raises(DataError, match="tensor x for a phone: expected float32, int32, uint8, found float64"):
        encode(Message({}, {"x": np.zeros(1)}))


@pytest.mark.parametrize("size", range(len(encode(Message({"do": "read"}, TENSORS)))))
def test_cut_frame_is_refused(size: int) -> None:
    with pytest.raises(DataError, match=f"message of {size} bytes"):
        decode(encode(Message({"do": "read"}, TENSORS))[:size])


def test_longer_frame_is_refused() -> None:
    with pytest.raises(DataError, match="expected"):
        decode(encode(Message({"do": "read"}, TENSORS)) + bytes(8))


@pytest.mark.parametrize(
    "header",
    [
        [],
        {},
        {"tensors": 3},
        {"tensors": [{"name": "x", "dtype": "float64", "shape": [1]}]},
        {"tensors": [{"name": "x", "dtype": "float32", "shape": [-1]}]},
        {"tensors": [{"name": "x", "dtype": "float32", "shape": [True]}]},
        {"tensors": [{"name": "x", "dtype": "float32", "shape": [1] * 9}]},
        {"tensors": [{"name": "x", "dtype": "float32", "shape": None}]},
        {"tensors": [{"name": "x", "shape": [1]}]},
    ],
)
def test_invalid_header_is_refused(header: object) -> None:
    with pytest.raises(DataError, match="its header is invalid"):
        decode(frame(header))


def test_declared_size_beyond_the_frame_is_refused_before_memory_is_taken() -> None:
    with pytest.raises(DataError, match="truncated within tensor 'x'"):
        decode(frame({"tensors": [{"name": "x", "dtype": "float32", "shape": [2**31 - 1]}]}))


def test_deeply_nested_header_is_refused() -> None:
    text = b"[" * 80_000
    with pytest.raises(DataError, match="its header is invalid"):
        decode(b"odt1" + struct.pack("<I", len(text)) + text)
