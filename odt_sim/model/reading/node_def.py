"""Reader of the NodeDef in the custom options of a Flex op, without TensorFlow.

The options are a flexbuffer with the op's name and the serialized NodeDef, a protocol buffer:
https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/framework/node_def.proto
"""

from collections.abc import Iterator

from flatbuffers import flexbuffers

NAME, OP, ATTRIBUTE = 1, 2, 5  # the numbers of NodeDef's fields
KEY, VALUE, TEXT = 1, 2, 2  # the fields of a map's entry, and of an AttrValue with a text


def of_custom_options(options: bytes) -> bytes:
    """Return the serialized NodeDef of a Flex op; empty if the options are damaged."""
    try:
        return bytes(flexbuffers.GetRoot(options).AsVector[1].AsStringBytes)
    except Exception:  # a damaged flexbuffer causes any exception
        return b""


def texts(node: bytes) -> dict[str, str]:
    """Return the name, the op and the text attributes of a NodeDef, such as `shared_name`."""
    found = {"name": "", "op": ""}
    for number, content in _fields(node):
        if number in (NAME, OP):
            found["name" if number == NAME else "op"] = content.decode(errors="replace")
        elif number == ATTRIBUTE:
            entry = dict(_fields(content))
            value = dict(_fields(entry.get(VALUE, b"")))
            if TEXT in value:
                found[entry.get(KEY, b"").decode(errors="replace")] = value[TEXT].decode(errors="replace")
    return found


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the numbers and bytes of a message's fields that have a length; stop where it is damaged."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        kind = key & 7
        if kind == 2:
            size, place = _varint(message, place)
            yield key >> 3, message[place : place + size]
            place += size
        elif kind == 0:
            _, place = _varint(message, place)
        elif kind in (1, 5):
            place += 8 if kind == 1 else 4
        else:
            return


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """Return a number of variable length and the place after it."""
    value = shift = 0
    while place < len(message):
        byte = message[place]
        value |= (byte & 127) << shift
        shift, place = shift + 7, place + 1
        if byte < 128:
            break
    return value, place
