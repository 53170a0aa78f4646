"""Messages between the coordinator and a phone, as binary frames of a JSON header and tensors.

A frame consists of `odt1`, the header's length as uint32, the header, and the data of each tensor in the header's
order. All numbers are little endian. Header and data are padded to 8 bytes, so that a browser can view the data without
a copy.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from odt_sim.errors import DataError
from odt_sim.model.contract.browsers import TYPES
from odt_sim.model.weights import Array

MAGIC = b"odt1"
LONGEST_HEADER = 1 << 20
MOST_AXES = 8
LARGEST = 1 << 31
"""The largest product of a tensor's axes; those of length 0 count as 1, because numpy multiplies the others."""


@dataclass(frozen=True)
class Message:
    """A message.

    Attributes:
        header: Its fields; `do` is its kind.
        tensors: Arrays by name, float32, int32 or uint8.
    """

    header: Mapping[str, Any]
    tensors: Mapping[str, Array] = field(default_factory=dict)


def encode(message: Message) -> bytes:
    """Return the frame of a message.

    Raises:
        DataError: The dtype of a tensor is not supported.
    """
    arrays = {name: np.ascontiguousarray(array) for name, array in message.tensors.items()}
    for name, array in arrays.items():
        if array.dtype.name not in TYPES:
            raise DataError(f"tensor {name} for a phone: expected {', '.join(TYPES)}, found {array.dtype.name}")
    declared = [
        {"name": name, "dtype": array.dtype.name, "shape": list(np.shape(message.tensors[name]))}
        for name, array in arrays.items()
    ]
    header = json.dumps({**message.header, "tensors": declared}).encode()
    parts = [MAGIC, struct.pack("<I", _padded(len(header))), header.ljust(_padded(len(header)))]
    for array in arrays.values():
        data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        parts += [data, bytes(_padded(len(data)) - len(data))]
    return b"".join(parts)


def decode(frame: bytes) -> Message:
    """Return the message of a frame; its arrays are read-only views.

    Raises:
        DataError: The frame is incomplete, or does not belong to this protocol.
    """
    if len(frame) < 8 or frame[:4] != MAGIC:
        raise DataError(f"message of {len(frame)} bytes: expected a frame of odt_sim; reload the page")
    [length] = struct.unpack("<I", frame[4:8])
    if length > min(LONGEST_HEADER, len(frame) - 8):
        raise DataError(f"message of {len(frame)} bytes: truncated within its header of {length} bytes; send it again")
    try:
        header = dict(json.loads(frame[8 : 8 + length]))
        declared = [_declared(**tensor) for tensor in header.pop("tensors")]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataError(f"message: its header is invalid ({type(error).__name__}: {error}); reload the page") from error
    tensors, start = {}, 8 + length
    for name, dtype, shape in declared:
        count = prod(shape)
        size = count * dtype.itemsize
        if start + size > len(frame):
            raise DataError(
                f"message of {len(frame)} bytes: truncated within tensor {name!r} {list(shape)}; send it again"
            )
        tensors[name] = np.frombuffer(frame, dtype, count, start).reshape(shape)
        start += _padded(size)
    if start != len(frame):
        raise DataError(f"message of {len(frame)} bytes: expected {start}; send it again")
    return Message(header, tensors)


def _declared(name: str, dtype: str, shape: list[int]) -> tuple[str, np.dtype[Any], tuple[int, ...]]:
    if not isinstance(name, str) or dtype not in TYPES or len(shape) > MOST_AXES:
        raise ValueError(f"tensor {name!r} of {dtype!r}")
    if not all(type(size) is int and 0 <= size < 1 << 31 for size in shape):
        raise ValueError(f"tensor {name!r} of shape {shape}")
    if prod(max(1, size) for size in shape) > LARGEST:
        raise ValueError(f"tensor {name!r} of shape {shape}: expected at most {LARGEST:,} elements")
    return name, np.dtype(dtype).newbyteorder("<"), tuple(shape)


def _padded(size: int) -> int:
    return -(-size // 8) * 8
