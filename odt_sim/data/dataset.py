"""A data set before it is partitioned over devices."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from odt_sim._support.text import counted
from odt_sim.data.store.columns import Array as Array
from odt_sim.data.store.columns import Columns, Mapped, Rows, arrays_of, is_mapped, several
from odt_sim.data.store.columns import read_only as read_only
from odt_sim.errors import DataError

Indices = NDArray[np.int64]
Classes = int | Mapping[str, int | None] | None
"""The number of classes; of several targets a mapping by name; None for regression."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """All examples of a data set, as read-only arrays. Sources return it checked (`odt_sim.data.checks.dataset_checks`).

    Arrays that have the right dtype are not copied: do not change yours in place afterwards. Runs would train on the
    changed values and record the digest of the original ones.

    Attributes:
        name: The name in messages and reports.
        x: `[examples, ...]` float32 or int32 inputs; images have a channel axis. Several inputs are `Columns`, or a mapping
            or tuple of arrays, which becomes one.
        y: Targets: `[examples]` int32 class labels; `[examples, classes]` float32 class probabilities (one-hot);
            `[examples, ...]` int32 labels of each position of a sequence; or `[examples, ...]` float32 values. Several
            targets are given like several inputs.
        users: `[examples]`, the user id of each example, integers or strings; None if there are no natural users.
        classes: The number of classes, for several targets a mapping by name; None for regression.
        sequences: `[examples]` integers or strings, the recording or text of each example. The examples of a sequence are
            in chronological order, by `times` if given, and a split by block cuts each sequence. None if a device's
            examples are one sequence.
        parts: `[examples]`, the part to which each example belongs, 0 for training, 1 for validation, 2 for test, for
            `split.method=given`; None if the data has no given split.
        standardize: Whether each device standardizes its inputs by its own training examples, after the split.
        times: `[examples]` numbers in any unit or `datetime64` values, the time of each example; None if unknown.
        class_names: The name of each class of a single target, in the order of the labels; empty if unknown.
    """

    name: str
    x: Rows
    y: Rows
    users: Array | None = None
    classes: Classes = None
    sequences: Array | None = None
    standardize: bool = False
    times: Array | None = None
    parts: Array | None = None
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Make the arrays read-only, and the names a tuple of texts."""
        object.__setattr__(self, "class_names", tuple(map(str, self.class_names)))
        for name in ("x", "y", "users", "sequences", "times", "parts"):
            if several(array := getattr(self, name)):
                object.__setattr__(self, name, Columns.of(array, f"data {self.name}, {name}"))
            elif isinstance(array, np.ndarray):
                object.__setattr__(self, name, read_only(array))

    def __repr__(self) -> str:
        """Return one line, without the arrays."""
        return f"Dataset({self.name}: {summarized(len(self.x), self.x, self.classes)})"

    @property
    def classes_by_target(self) -> Mapping[str, int | None]:
        """The number of classes by the name of the target; a single target has the empty name."""
        if isinstance(self.classes, Mapping):
            return self.classes
        return dict.fromkeys(arrays_of(self.y), self.classes)

    @property
    def has_labels(self) -> bool:
        """Whether each example belongs to one class of a target."""
        return bool(self._labelled())

    def _labelled(self) -> list[Array]:
        """Return the targets that are one class for each example."""
        classes = self.classes_by_target
        return [
            y
            for name, y in arrays_of(self.y).items()
            if classes.get(name) is not None and (y.ndim == 1 or (y.ndim == 2 and y.dtype == np.float32))
        ]

    def labels(self) -> NDArray[np.int32]:
        """Return the class of each example, `[examples]`, of the first target that has one.

        The class of a one-hot row is that of its largest value.

        Raises:
            DataError: The examples do not have one class each.
        """
        targets = self._labelled()
        if not targets:
            raise DataError(
                f"data {self.name}: expected one class label for each example, found {self._kinds()}; "
                "make labels integers, set the classes of one-hot rows (data.classes, or Dataset(..., classes=...)), or "
                "use a partition that needs no labels: iid, quantity_skew or by_user"
            )
        y = targets[0]
        return y if y.ndim == 1 else y.argmax(axis=1).astype(np.int32)

    def _kinds(self) -> str:
        """Return a description of targets that are not one class label per example."""
        classes = self.classes_by_target
        kinds = {
            name: "regression targets" if classes.get(name) is None else f"labels of shape {list(y.shape[1:])}"
            for name, y in arrays_of(self.y).items()
        }
        return ", ".join(f"{kind} ({name})" if name else kind for name, kind in kinds.items())


def summarized(examples: int, x: Rows, classes: Classes) -> str:
    """Return a summary of the examples, such as `60 examples of shape [8], 3 classes`."""
    by_target = dict(classes) if isinstance(classes, Mapping) else {"": classes}
    targets = " and ".join(
        f"{name} of {kind}" if name else kind
        for name, count in by_target.items()
        for kind in ["regression" if count is None else counted(count, "class", "classes")]
    )
    shapes = " and ".join(str(list(np.shape(array)[1:])) for array in arrays_of(x).values())
    return f"{counted(examples, 'example')} of shape {shapes}, {targets}"


def digest_of(*rows: Rows | None) -> str:
    """Return 16 hexadecimal digits of a hash of the values, shapes and dtypes, and the names of columns.

    None is skipped. Arrays of a store contribute the digest that was written with their file.
    """
    digest = hashlib.sha256()
    for arrays in rows:
        for name, array in () if arrays is None else arrays_of(arrays).items():
            if isinstance(array, Mapped) and is_mapped(array):
                digest.update(f"{name}{array.dtype.str} {array.shape} {array.digest}".encode())
                continue
            plain = np.ascontiguousarray(array.astype(np.str_) if array.dtype.kind == "O" else array)
            digest.update(f"{name}{plain.dtype.str} {plain.shape}".encode())
            digest.update(plain.view(np.uint8).data if plain.size else b"")
    return digest.hexdigest()[:16]
