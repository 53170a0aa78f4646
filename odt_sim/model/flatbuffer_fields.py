"""Fields of a flatbuffer's table, read with few Python calls.

The classes of the schema look up the table's layout again for each field. A file of 10,000 tensors and ops takes them most of
a second. Slots are the positions of fields in the schema, which never change.
"""

import struct

_INT, _UNSIGNED, _SHORT = struct.Struct("<i"), struct.Struct("<I"), struct.Struct("<H")


class Fields:
    """The fields of the table at a position; wrong offsets raise `struct.error`, or give other values of the content."""

    def __init__(self, content: bytes, position: int) -> None:
        self._content, self._position = content, position
        layout = position - _INT.unpack_from(content, position)[0]
        count = (_SHORT.unpack_from(content, layout)[0] - 4) // 2
        self._offsets = struct.unpack_from(f"<{count}H", content, layout + 4)

    def present(self, slot: int) -> bool:
        """Return whether the table has a field."""
        return slot < len(self._offsets) and self._offsets[slot] != 0

    def byte(self, slot: int) -> int:
        """Return a signed or an unsigned byte below 128; 0 if it is absent."""
        return self._content[self._position + self._offsets[slot]] if self.present(slot) else 0

    def unsigned(self, slot: int) -> int:
        """Return an unsigned integer of 32 bits; 0 if it is absent."""
        if not self.present(slot):
            return 0
        return int(_UNSIGNED.unpack_from(self._content, self._position + self._offsets[slot])[0])

    def integers(self, slot: int) -> tuple[int, ...]:
        """Return a vector of signed integers of 32 bits; empty if it is absent."""
        if not self.present(slot):
            return ()
        start, count = self._vector(slot)
        return struct.unpack_from(f"<{count}i", self._content, start)

    def text(self, slot: int) -> bytes:
        """Return a string, or a vector of bytes; empty if it is absent."""
        if not self.present(slot):
            return b""
        start, count = self._vector(slot)
        return self._content[start : start + count]

    def _vector(self, slot: int) -> tuple[int, int]:
        """Return where a vector's items start, and how many there are."""
        place = self._position + self._offsets[slot]
        start = place + _UNSIGNED.unpack_from(self._content, place)[0]
        return start + 4, _UNSIGNED.unpack_from(self._content, start)[0]
