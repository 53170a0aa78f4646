"""A cache of embeddings that an unchanged body computed from devices' examples."""

import hashlib
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.columns import Rows
from odt_sim.device.examples import Examples
from odt_sim.model.weights import Weights

LIMIT = 256 << 20
"""The default limit of a cache's embeddings, in bytes."""

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class _Entry:
    """Embeddings and what they were computed from.

    Attributes:
        x: A weak reference to the array with the embedded rows, compared by identity.
        index: The bytes of the embedded rows' positions, which are compared at once; None for all rows.
        body: The digest of the body's parameters.
        embeddings: `[examples, ...]`.
    """

    x: "weakref.ref[Rows]"
    index: bytes | None
    body: str
    embeddings: Array

    def matches(self, examples: Examples, body: str) -> bool:
        """Whether the entry belongs to these examples and this body."""
        return self.body == body and self.x() is examples.x and self.index == _bytes_of(examples.index)


def _bytes_of(index: NDArray[np.int64] | None) -> bytes | None:
    return None if index is None else index.tobytes()


class EmbeddingCache:
    """Embeddings by device and split, with least-recently-used eviction, for any number of threads.

    An entry holds a whole split in its own order, so a cached result equals a computed one.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        """Create an empty cache of at most `limit` bytes."""
        self._limit = limit
        self._bytes = 0
        self._entries: OrderedDict[tuple[int, str], _Entry] = OrderedDict()
        self._lock = Lock()

    def get(self, device: int, split: str, examples: Examples, body: str, embed: Callable[[], Array]) -> Array:
        """Return the embeddings `[examples, ...]` of a device's split; compute them on a miss.

        Args:
            device: The device's id.
            split: The split's name.
            examples: Its examples.
            body: The digest of the body's parameters.
            embed: Computes the embeddings.
        """
        key = device, split
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and entry.matches(examples, body):
                self._entries.move_to_end(key)
                return entry.embeddings
        embeddings = embed()
        with self._lock:
            self._drop(key)
            self._keep(key, _Entry(weakref.ref(examples.x), _bytes_of(examples.index), body, embeddings))
        return embeddings

    def _keep(self, key: tuple[int, str], entry: _Entry) -> None:
        size = entry.embeddings.nbytes
        if size > self._limit:
            return
        while self._bytes + size > self._limit:
            self._drop(next(iter(self._entries)))
        self._entries[key] = entry
        self._bytes += size

    def _drop(self, key: tuple[int, str]) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.embeddings.nbytes


_DIGESTS = weakref.WeakKeyDictionary[Weights, str]()
"""The digests of read-only weights that still exist; hashing them for each device would take longer than its steps."""


def digest_of_body(weights: Weights) -> str:
    """Return a digest of the parameters outside the head."""
    digest = _DIGESTS.get(weights)
    if digest is None:
        body = weights.select(weights.layout.select(lambda p: p.group != "head"))
        digest = hashlib.blake2b(body.vector.data).hexdigest()  # twice as fast as SHA-256 without SHA instructions
        if not weights.vector.flags.writeable:
            _DIGESTS[weights] = digest
    return digest
