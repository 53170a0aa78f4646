"""Memory-mapped arrays, pickled as the path of their file."""

from pathlib import Path
from typing import Any

import numpy as np

from odt_sim.errors import DataError


class Mapped(np.ndarray[Any, Any]):
    """Read-only array in an `.npy` file; a process reads only the rows that it selects.

    Pickling writes the path, so that the processes of a machine share the file's pages. Selected rows are plain arrays.
    Values are checked when the file is written.

    Attributes:
        path: The file; None for views and copies.
        digest: A hash of the values; empty for views and copies.
    """

    path: Path | None
    digest: str

    @classmethod
    def open(cls, path: Path, digest: str) -> "Mapped":
        """Return the array of a file.

        Args:
            path: The file.
            digest: The hash of its values.

        Raises:
            DataError: The file is missing or damaged.
        """
        try:
            mapped: Mapped = np.load(path, mmap_mode="r", allow_pickle=False).view(cls)
        except (OSError, ValueError) as error:
            raise DataError(
                f"data {path}: cannot be opened on this machine ({error}); on a cluster, set data.store to a folder "
                "that all nodes share"
            ) from error
        mapped.path, mapped.digest = path, digest
        return mapped

    def __array_finalize__(self, _: object) -> None:
        """Clear path and digest, since a view or copy differs from the file."""
        self.path, self.digest = None, ""

    def __getitem__(self, rows: Any) -> Any:
        """Return the selected rows as a plain array."""
        return self.view(np.ndarray)[rows]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Return the path instead of the values."""
        return (Mapped.open, (self.path, self.digest)) if self.path else self.view(np.ndarray).__reduce_ex__(protocol)


def is_mapped(array: object) -> bool:
    """Return whether an array is a complete file of a store, and not a view or copy."""
    return isinstance(array, Mapped) and array.path is not None
