"""Add metadata to a `.tflite` file.

Tables of a flatbuffer only refer forward (https://flatbuffers.dev/internals). So a new root before a file's content can
refer to the file's own tables, which stay unchanged. Unpacking and packing a graph of 10,000 ops would take seconds.
"""

import struct
from collections.abc import Sequence

from odt_sim.model.reading.flatbuffer_fields import BUFFERS, METADATA, Fields
from odt_sim.model.reading.graph_reader import IDENTIFIER

ALIGNMENT = 16
"""The schema places the data of buffers at multiples of this many bytes."""

_VERSION, _SLOTS = 0, 10  # the first slot of the schema's root, and the number of slots


def with_metadata(content: bytes, name: str, data: bytes) -> bytes:
    """Return the file's bytes with one metadata entry added or replaced.

    Args:
        content: The bytes of a readable `.tflite` file.
        name: The name of the entry.
        data: Its bytes.
    """
    text = name.encode()
    model = Fields.root(content)
    buffers = [buffer.position for buffer in model.tables(BUFFERS)]
    entries = [entry.position for entry in model.tables(METADATA) if entry.text(0) != text]

    # The front: the root, both vectors, the entry with its name, and the buffer with its data. Tables follow their layouts.
    layout = 8
    root = layout + 4 + 2 * _SLOTS
    buffers_at = root + 4 + 4 * _SLOTS
    entries_at = buffers_at + 4 * (len(buffers) + 2)
    entry = entries_at + 4 * (len(entries) + 2) + 8
    name_at = entry + 12
    buffer = _aligned(name_at + 4 + len(text) + 1, 4) + 8
    data_at = _aligned(buffer + 8 + 4, ALIGNMENT) - 4
    size = _aligned(data_at + 4 + len(data), ALIGNMENT)

    front = bytearray(size)
    struct.pack_into("<I4s", front, 0, root, IDENTIFIER)
    fields = {slot: size + model.target(slot) for slot in range(1, _SLOTS) if model.present(slot)}
    fields |= {BUFFERS: buffers_at, METADATA: entries_at}
    offsets = [4 + 4 * slot if slot in fields or slot == _VERSION else 0 for slot in range(_SLOTS)]
    struct.pack_into(f"<HH{_SLOTS}H", front, layout, 4 + 2 * _SLOTS, 4 + 4 * _SLOTS, *offsets)
    struct.pack_into("<iI", front, root, root - layout, model.unsigned(_VERSION))
    for slot, target in fields.items():
        _refer(front, root + offsets[slot], target)
    _write_vector(front, buffers_at, [*(size + position for position in buffers), buffer])
    _write_vector(front, entries_at, [*(size + position for position in entries), entry])
    struct.pack_into("<4Hi", front, entry - 8, 8, 12, 4, 8, 8)
    _refer(front, entry + 4, name_at)
    struct.pack_into(f"<II{len(text)}s", front, entry + 8, len(buffers), len(text), text)
    struct.pack_into("<4Hi", front, buffer - 8, 6, 8, 4, 0, 8)
    _refer(front, buffer + 4, data_at)
    struct.pack_into(f"<I{len(data)}s", front, data_at, len(data), data)
    return bytes(front) + content


def _refer(front: bytearray, place: int, target: int) -> None:
    struct.pack_into("<I", front, place, target - place)


def _write_vector(front: bytearray, place: int, targets: Sequence[int]) -> None:
    """Write a vector of references to tables."""
    relative = (target - (place + 4 * i) for i, target in enumerate(targets, 1))
    struct.pack_into(f"<{len(targets) + 1}I", front, place, len(targets), *relative)


def _aligned(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment
