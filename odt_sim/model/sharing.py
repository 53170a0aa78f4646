"""Store equal constants of a `.tflite` file once, such as the frozen weights that several signatures read."""

from collections import Counter

from odt_sim.model.editing import packed, unpacked
from odt_sim.model.flatbuffer_fields import BUFFERS, Fields

WORTH = 0.1
"""The share of repeated constants above which a file is rewritten; for a graph of 10,000 ops, that takes seconds."""

_DATA = 0  # the slot of a buffer


def with_shared_constants(content: bytes) -> bytes:
    """Return a file whose tensors of equal data refer to one buffer, or the file itself if that saves too little."""
    model = Fields.root(content)
    counts = Counter(buffer.text(_DATA) for buffer in model.tables(BUFFERS))
    repeated = sum(len(data) * (count - 1) for data, count in counts.items())
    return _shared(content) if repeated > WORTH * len(content) else content


def _shared(content: bytes) -> bytes:
    model = unpacked(content)
    first = dict[bytes, int]()
    kept = {}
    for index, buffer in enumerate(model.buffers):
        if buffer.data is not None and len(buffer.data):
            kept[index] = first.setdefault(bytes(buffer.data), index)
    for tensor in (tensor for subgraph in model.subgraphs for tensor in subgraph.tensors):
        tensor.buffer = kept.get(tensor.buffer, tensor.buffer)
    used = {entry.buffer for entry in model.metadata or []} | set(kept.values())
    for index in kept.keys() - used:
        model.buffers[index].data = None
    return packed(model)
