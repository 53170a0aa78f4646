"""A cache of embeddings that an unchanged body computed from devices' examples."""

import hashlib
import weakref
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import NamedTuple

from odt_sim.data.store.columns import Array, Rows
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
        self._entries: OrderedDict[tuple[int, str], tuple[weakref.ref[Rows], Embedded]] = OrderedDict()
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
        key, rows = (device, split), None if examples.index is None else examples.index.tobytes()
        with self._lock:
            if key in self._entries:
                x, embedded = self._entries[key]
                if embedded.body == body and x() is examples.x and embedded.rows == rows:
                    self._entries.move_to_end(key)
                    return embedded.embeddings
        computed = Embedded(device, split, rows, body, embed())
        self.add(computed, examples.x)
        if self.on_computed:
            self.on_computed(computed)
        return computed.embeddings

    def add(self, embedded: Embedded, x: Rows) -> None:
        """Store embeddings of some rows of `x`, replacing earlier ones of this device and split."""
        key, size = (embedded.device, embedded.split), embedded.embeddings.nbytes
        with self._lock:
            self._drop(key)
            if size > self._limit:
                return
            while self._bytes + size > self._limit:
                self._drop(next(iter(self._entries)))
            self._entries[key] = weakref.ref(x), embedded
            self._bytes += size

    def _drop(self, key: tuple[int, str]) -> None:
        if key in self._entries:
            _, embedded = self._entries.pop(key)
            self._bytes -= embedded.embeddings.nbytes


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
