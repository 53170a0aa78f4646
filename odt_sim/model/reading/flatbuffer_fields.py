"""Fields of a flatbuffer's table, read with few Python calls.

The classes of the schema look up the table's layout again for each field, which takes most of a second for a file of
10,000 tensors and ops. Here, a layout that many tables share is read once. Slots are the positions of fields in the
schema, which never change.
"""

import struct
from collections.abc import Iterator

OPERATOR_CODES, SUBGRAPHS, DESCRIPTION, BUFFERS, METADATA, SIGNATURES = 1, 2, 3, 4, 6, 7
"""Slots of the root of a `.tflite` file."""

_INT, UNSIGNED, UNSIGNED_64, _SHORT = (struct.Struct(f"<{code}") for code in "iIQH")

_FEW = tuple(struct.Struct(f"<{count}i") for count in range(8))
"""Short vectors of integers, by their length."""


class Fields:
    """The fields of a table; wrong offsets raise `struct.error`, or return other values of the content.

    Attributes:
        position: The position of the table in the content.
    """

    __slots__ = ("_content", "_layouts", "_offsets", "position")

    def __init__(self, content: bytes, position: int, layouts: dict[int, tuple[int, ...]]) -> None:
        self._content, self.position, self._layouts = content, position, layouts
        layout: int = position - _INT.unpack_from(content, position)[0]
        if layout not in layouts:
            count = max(0, (_SHORT.unpack_from(content, layout)[0] - 4) // 2)
            layouts[layout] = struct.unpack_from(f"<{count}H", content, layout + 4)
        self._offsets = layouts[layout]

    @classmethod
    def root(cls, content: bytes) -> "Fields":
        """Return the fields of a file's root."""
        return cls(content, UNSIGNED.unpack_from(content)[0], {})

    def present(self, slot: int) -> bool:
        """Return whether the table has a field."""
        return slot < len(self._offsets) and self._offsets[slot] != 0

    def byte(self, slot: int) -> int:
        """Return a signed or an unsigned byte below 128; 0 if it is absent."""
        return self._content[self.position + self._offsets[slot]] if self.present(slot) else 0

    def unsigned(self, slot: int, form: struct.Struct = UNSIGNED) -> int:
        """Return an unsigned integer; 0 if it is absent."""
        if not self.present(slot):
            return 0
        return int(form.unpack_from(self._content, self.position + self._offsets[slot])[0])

    def vector(self, slot: int) -> tuple[int, int]:
        """Return the start of a vector's items, and their number; 0 if it is absent."""
        if not self.present(slot):
            return 0, 0
        start = self.target(slot)
        return start + 4, int(UNSIGNED.unpack_from(self._content, start)[0])

    def length(self, slot: int) -> int:
        """Return the number of a vector's items; 0 if it is absent."""
        return self.vector(slot)[1]

    def integers(self, slot: int) -> tuple[int, ...]:
        """Return a vector of signed 32-bit integers; empty if it is absent."""
        start, count = self.vector(slot)
        few = _FEW[count] if count < len(_FEW) else struct.Struct(f"<{count}i")
        return few.unpack_from(self._content, start)

    def text(self, slot: int) -> bytes:
        """Return a string, or a vector of bytes; empty if it is absent."""
        start, count = self.vector(slot)
        return self._content[start : start + count]

    def table(self, slot: int) -> "Fields":
        """Return the table to which a field refers, which must be present."""
        return Fields(self._content, self.target(slot), self._layouts)

    def tables(self, slot: int) -> Iterator["Fields"]:
        """Yield the tables of a vector; none if it is absent."""
        start, count = self.vector(slot)
        offsets = struct.unpack_from(f"<{count}I", self._content, start)
        return (Fields(self._content, start + 4 * i + offset, self._layouts) for i, offset in enumerate(offsets))

    def target(self, slot: int) -> int:
        """Return the position to which a present field refers."""
        place = self.position + self._offsets[slot]
        offset: int = UNSIGNED.unpack_from(self._content, place)[0]
        return place + offset
