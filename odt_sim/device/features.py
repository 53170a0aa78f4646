"""What a body that is not trained says of a device's examples, computed once."""

import hashlib
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.examples import Examples
from odt_sim.model.weights import Weights

LIMIT = 256 << 20
"""The bytes of features that a cache holds at most."""

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class _Entry:
    """Features, and of what they are.

    Attributes:
        x: The array whose rows were embedded; must be the very same one, and is not kept alive.
        index: The rows; None for all.
        body: The digest of the parameters that embedded them.
        features: `[examples, ...]`.
    """

    x: "weakref.ref[Array]"
    index: NDArray[np.int64] | None
    body: str
    features: Array

    def fits(self, examples: Examples, body: str) -> bool:
        """Whether these are the features of these examples by this body."""
        if self.body != body or self.x() is not examples.x:
            return False
        if self.index is None or examples.index is None:
            return self.index is examples.index
        return np.array_equal(self.index, examples.index)


class FeatureCache:
    """Features by device and split; those that were used least recently go.

    They are computed of a whole split in its own order, so that nothing but time tells whether they were there. The arrays
    that examples stand in must not be changed in place.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        """Holds nothing yet.

        Args:
            limit: The bytes of features to hold at most.
        """
        self._limit = limit
        self._bytes = 0
        self._entries: OrderedDict[tuple[int, str], _Entry] = OrderedDict()

    def features(self, device: int, split: str, examples: Examples, body: str, embed: Callable[[], Array]) -> Array:
        """Returns the features of a device's split, `[examples, ...]`, computing them where they are not there.

        Args:
            device: The device's id.
            split: The split's name.
            examples: Its examples.
            body: The digest of the parameters that embed them.
            embed: Computes the features.
        """
        key = device, split
        entry = self._entries.get(key)
        if entry is not None and entry.fits(examples, body):
            self._entries.move_to_end(key)
            return entry.features
        features = embed()
        self._drop(key)
        self._keep(key, _Entry(weakref.ref(examples.x), examples.index, body, features))
        return features

    def _keep(self, key: tuple[int, str], entry: _Entry) -> None:
        size = entry.features.nbytes
        if size > self._limit:
            return
        while self._bytes + size > self._limit:
            self._drop(next(iter(self._entries)))
        self._entries[key] = entry
        self._bytes += size

    def _drop(self, key: tuple[int, str]) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.features.nbytes


def digest_of_body(weights: Weights) -> str:
    """Returns a digest of the parameters outside the head: equal ones embed equally."""
    body = weights.select(weights.layout.select(lambda p: p.group != "head"))
    return hashlib.blake2b(body.vector.data).hexdigest()  # twice as fast as SHA-256 where that has no instructions
