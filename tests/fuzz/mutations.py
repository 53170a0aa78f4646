"""Seeded damage to files, so that every case is reproducible."""

import struct
from collections.abc import Callable, Sequence
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

Random = np.random.Generator

ODD = (0, 1, 2, 4, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF)
"""Numbers at which lengths, offsets, shapes and indices go wrong."""


def flip_bits(content: bytearray, random: Random, others: Sequence[bytes]) -> None:
    for place in random.integers(len(content), size=random.integers(1, 9)):
        content[place] ^= 1 << int(random.integers(8))


def cut(content: bytearray, random: Random, others: Sequence[bytes]) -> None:
    del content[int(random.integers(len(content))) :]


def splice(content: bytearray, random: Random, others: Sequence[bytes]) -> None:
    """Copy a piece of a file, possibly this one, over a part of this one, aligned to words."""
    source = others[int(random.integers(len(others)))]
    size = 4 * int(random.integers(1, 65))
    start, to = (4 * int(random.integers(max(1, (len(data) - size) // 4))) for data in (source, content))
    content[to : to + size] = source[start : start + size]


def set_words(content: bytearray, random: Random, others: Sequence[bytes]) -> None:
    """Set words, which may be lengths, offsets, shapes or indices, to odd numbers."""
    for _ in range(int(random.integers(1, 4))):
        place = 4 * int(random.integers(max(1, len(content) // 4 - 1)))
        struct.pack_into("<I", content, place, ODD[int(random.integers(len(ODD)))])


def shift_words(content: bytearray, random: Random, others: Sequence[bytes]) -> None:
    """Change small words slightly, like a wrong offset or index; other words would break the file at once."""
    small = [i for i in range(0, len(content) - 4, 4) if 0 < struct.unpack_from("<I", content, i)[0] < 4096]
    for i in random.choice(small, size=2) if small else ():
        value = struct.unpack_from("<I", content, int(i))[0] + int(random.integers(-16, 17))
        struct.pack_into("<I", content, int(i), value % 2**32)


def insert(content: bytearray, random: Random, others: Sequence[bytes]) -> None:
    place = int(random.integers(len(content) + 1))
    content[place:place] = random.bytes(int(random.integers(1, 33)))


def edit_graph(content: bytearray, random: Random, others: Sequence[bytes]) -> None:
    """Change the declared graph and write a well-formed file, so that the damage shows only at run time."""
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(bytes(content), 0))
    for _ in range(int(random.integers(1, 4))):
        graph = _one(model.subgraphs, random)
        _one(EDITS, random)(model, graph, _one(graph.tensors, random), _one(graph.operators, random), random)
    builder = flatbuffers.Builder(2 * len(content))
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    content[:] = builder.Output()


def edit_inputs(model: Any, graph: Any, tensor: Any, operator: Any, random: Random) -> None:
    operator.inputs = _changed(operator.inputs, range(-1, len(graph.tensors)), random)


def edit_outputs(model: Any, graph: Any, tensor: Any, operator: Any, random: Random) -> None:
    operator.outputs = _changed(operator.outputs, range(-1, len(graph.tensors)), random)


def edit_shape(model: Any, graph: Any, tensor: Any, operator: Any, random: Random) -> None:
    tensor.shape = _changed(tensor.shape, (*range(64), *ODD[:10]), random)


def edit_type(model: Any, graph: Any, tensor: Any, operator: Any, random: Random) -> None:
    tensor.type = int(random.integers(19))


def edit_buffer(model: Any, graph: Any, tensor: Any, operator: Any, random: Random) -> None:
    tensor.buffer = int(random.integers(len(model.buffers)))


def edit_data(model: Any, graph: Any, tensor: Any, operator: Any, random: Random) -> None:
    model.buffers[tensor.buffer].data = np.frombuffer(random.bytes(int(random.integers(64))), np.uint8)


def edit_kind(model: Any, graph: Any, tensor: Any, operator: Any, random: Random) -> None:
    operator.opcodeIndex = int(random.integers(len(model.operatorCodes)))


EDITS = (edit_inputs, edit_outputs, edit_shape, edit_type, edit_buffer, edit_data, edit_kind)


def _one(choices: Sequence[Any], random: Random) -> Any:
    return choices[int(random.integers(len(choices)))]


def _changed(numbers: Any, choices: Sequence[int], random: Random) -> Any:
    """Return a copy with one number changed."""
    changed = np.array(numbers if numbers is not None else [], np.int32)
    if len(changed):
        changed[int(random.integers(len(changed)))] = _one(choices, random)
    return changed


Kind = Callable[[bytearray, Random, Sequence[bytes]], None]

BYTES: tuple[Kind, ...] = (flip_bits, cut, splice, set_words, shift_words, insert)
"""What can happen to any file."""

KINDS = (*BYTES, edit_graph)
"""What can happen to a `.tflite` file."""


def mutated(case: int, files: Sequence[bytes], kinds: Sequence[Kind] = KINDS) -> bytes:
    """Return a damaged copy of one of the files; cases are distinct and cover all kinds evenly.

    Args:
        case: Index from 0.
        files: Files to damage, and sources of pieces.
        kinds: Kinds of damage.
    """
    random = np.random.default_rng((7, case))
    content = bytearray(files[case // len(kinds) % len(files)])
    kinds[case % len(kinds)](content, random, files)
    return bytes(content)
