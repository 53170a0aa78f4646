"""What tells one data set from another of the same name."""

import hashlib

import numpy as np

from odt_sim.data.dataset import Array

LENGTH = 16  # hexadecimal digits


def digest_of(*arrays: Array | None) -> str:
    """Returns 16 hexadecimal digits that differ where a value, a shape or a dtype does; None is like no array."""
    digest = hashlib.sha256()
    for array in arrays:
        if array is not None:
            plain = np.ascontiguousarray(array.astype(np.str_) if array.dtype.kind == "O" else array)
            digest.update(f"{plain.dtype.str} {plain.shape}".encode())
            digest.update(plain.view(np.uint8).data if plain.size else b"")
    return digest.hexdigest()[:LENGTH]
