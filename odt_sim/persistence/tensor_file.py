"""Files of tensors and texts: safetensors with a checksum, so that any damage is told.

A file begins with the length of its header (8 bytes, little-endian), then come the header, JSON padded to a multiple of 8
bytes, and the tensors. The header's `__metadata__` holds the texts. One of them is the CRC-32 of the whole file with zeros in
its own place: it finds every flipped byte for certain and other damage but for one in 4 billion, at 3 GB/s, where SHA-256
takes eight times as long. Equal content is equal bytes.
"""

import json
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.errors import CheckpointError, VersionError

Array = NDArray[Any]

FORMAT_VERSION = "3"

TYPES = {
    **{"F64": "<f8", "F32": "<f4", "F16": "<f2", "BOOL": "|b1"},
    **{"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1"},
}
CODES = {name: code for code, name in TYPES.items()}
UNKNOWN = "00000000"


def packed(tensors: Mapping[str, Array], texts: Mapping[str, str]) -> bytes:
    """Returns the content of a file.

    Args:
        tensors: The tensors by name.
        texts: The texts by name.

    Raises:
        CheckpointError: A tensor is of a type that safetensors does not have.
    """
    header: dict[str, Any] = {"__metadata__": {**texts, "format_version": FORMAT_VERSION, "checksum": UNKNOWN}}
    parts: list[Any] = []
    end = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: -item[1].dtype.itemsize):  # so that each is aligned
        code = CODES.get(tensor.dtype.newbyteorder("<").str)
        if code is None:
            raise CheckpointError(
                f"{name}: a tensor of {tensor.dtype} cannot be kept; make it one of {', '.join(TYPES)}"
            )
        header[name] = {"dtype": code, "shape": tensor.shape, "data_offsets": (end, end + tensor.nbytes)}
        parts.append(np.ascontiguousarray(tensor, TYPES[code]).reshape(-1).view(np.uint8).data)
        end += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    parts[:0] = [len(text).to_bytes(8, "little"), text]
    parts[1] = text.replace(_checksum_text(UNKNOWN), _checksum_text(_checksum(parts)), 1)
    return b"".join(parts)


class TensorFile:
    """What a file of `packed` holds.

    Attributes:
        texts: The texts by name.
    """

    def __init__(self, content: bytes, where: str) -> None:
        """Checks the content.

        Args:
            content: The whole file.
            where: What the errors call it.

        Raises:
            CheckpointError: It is damaged, or no such file.
            VersionError: It is of another version.
        """
        self._content = content
        self._start = 8 + int.from_bytes(content[:8], "little")
        header = content[8 : self._start]
        try:
            self._tensors = dict(json.loads(header))
            self.texts: dict[str, str] = dict(self._tensors.pop("__metadata__", {}))
            found = self.texts.pop("checksum", "")
            version = self.texts.pop("format_version", "")
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise CheckpointError(
                f"{where}: damaged or no checkpoint ({error}); put back a whole copy if there is one"
            ) from error
        here = header.replace(_version_text(version), _version_text(FORMAT_VERSION), 1)
        if version != FORMAT_VERSION and str(version).isdecimal() and not self._fits(here, found):
            raise VersionError(
                f"{where}: format version {version}, this odt_sim reads {FORMAT_VERSION}; use the odt_sim that wrote it"
            )
        if version != FORMAT_VERSION or not self._fits(header, found):
            raise CheckpointError(
                f"{where}: damaged, its checksum does not fit its content; put back a whole copy if there is one"
            )

    def _fits(self, header: bytes, checksum: str) -> bool:
        cleared = header.replace(_checksum_text(checksum), _checksum_text(UNKNOWN), 1)
        return checksum == _checksum([self._content[:8], cleared, memoryview(self._content)[self._start :]])

    def names(self, prefix: str = "") -> list[str]:
        """Returns the names of the tensors, of those that begin with `prefix`."""
        return [name for name in self._tensors if name.startswith(prefix)]

    def tensor(self, name: str) -> Array:
        """Returns a copy of a tensor."""
        entry = self._tensors[name]
        offset = self._start + entry["data_offsets"][0]
        return np.ndarray(entry["shape"], TYPES[entry["dtype"]], self._content, offset).copy()

    def tensors(self) -> dict[str, Array]:
        """Returns copies of all tensors by name."""
        return {name: self.tensor(name) for name in self._tensors}


def _version_text(version: str) -> bytes:
    return f'"format_version":"{version}"'.encode()


def _checksum_text(checksum: str) -> bytes:
    return f'"checksum":"{checksum}"'.encode()


def _checksum(parts: list[Any]) -> str:
    value = 0
    for part in parts:
        value = zlib.crc32(part, value)
    return f"{value:08x}"
