"""A cache of embeddings that an unchanged body computed from devices' examples."""

import hashlib
import weakref
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.columns import Array, Rows
from odt_sim.device.examples import Examples
from odt_sim.model.weights import Weights

LIMIT = 256 << 20
"""The default limit of a cache's embeddings, in bytes."""


class Embedded(NamedTuple):
    """The embeddings of a device's split, and the sources that identify them, except the array with the embedded rows.

    Attributes:
        device: The device's id.
        split: The split's name.
        rows: The embedded rows' positions as bytes, for one fast comparison; None for all rows.
        body: The digest of the body's parameters.
        embeddings: `[examples, ...]`.
    """

    device: int
    split: str
    rows: bytes | None
    body: str
    embeddings: Array


class _Entry(NamedTuple):
    """An entry of a cache.

    Attributes:
        x: A weak reference to the array with the embedded rows, compared by identity.
        embedded: The embeddings.
    """

    x: "weakref.ref[Rows]"
    embedded: Embedded

    def matches(self, examples: Examples, body: str) -> bool:
        """Return whether the entry belongs to these examples and this body."""
        embedded = self.embedded
        same = embedded.body == body and self.x() is examples.x
        return same and embedded.rows == _bytes_of(examples.index)


def _bytes_of(index: NDArray[np.int64] | None) -> bytes | None:
    return None if index is None else index.tobytes()


class EmbeddingCache:
    """Embeddings by device and split, with least-recently-used eviction, for any number of threads.

    An entry contains a whole split in its own order, so a cached result equals a computed one.

    Attributes:
        on_computed: Called with newly computed embeddings, to add them to the caches of other processes.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        """Create an empty cache of at most `limit` bytes."""
        self._limit = limit
        self._bytes = 0
        self._entries: OrderedDict[tuple[int, str], _Entry] = OrderedDict()
        self._lock = Lock()
        self.on_computed: Callable[[Embedded], None] | None = None

    def copy(self) -> "EmbeddingCache":
        """Return a cache with the same embeddings, for a fork of this process."""
        copy = EmbeddingCache(self._limit)
        with self._lock:
            copy._bytes, copy._entries = self._bytes, self._entries.copy()
        return copy

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
                return entry.embedded.embeddings
        computed = Embedded(device, split, _bytes_of(examples.index), body, embed())
        self.add(computed, examples.x)
        if self.on_computed:
            self.on_computed(computed)
        return computed.embeddings

    def add(self, embedded: Embedded, x: Rows) -> None:
        """Store embeddings of some rows of `x`, replacing earlier ones of this device and split."""
        key, size = (embedded.device, embedded.split), embedded.embeddings.nbytes
        with self._lock:
            self._drop(key)
            if size <= self._limit:
                self._keep(key, _Entry(weakref.ref(x), embedded), size)

    def _keep(self, key: tuple[int, str], entry: _Entry, size: int) -> None:
        while self._bytes + size > self._limit:
            self._drop(next(iter(self._entries)))
        self._entries[key] = entry
        self._bytes += size

    def _drop(self, key: tuple[int, str]) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.embedded.embeddings.nbytes


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
