"""Trainable `.tflite` files in the dialects of public apps, written by `python -m dialects` and cached.

Every file of `files/` writes one or several models with a function `write_all`. Reading them needs no TensorFlow.
"""

import hashlib
import json
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from exporter import EXPORTER
from filelock import FileLock
from numpy.typing import NDArray

from odt_sim.export.cache import default_directory

FOLDER = Path(__file__).parent
FOUR = tuple(f"four_files_{part}" for part in ("initialize", "bottleneck", "train_head", "optimizer"))
MODELS = {
    **{path.stem: path.stem for path in sorted((FOLDER / "files").glob("[a-z]*.py")) if path.stem != "four_files"},
    **dict.fromkeys(FOUR, "four_files"),
    "closed_momentum": "closed",
    "counted_closed": "counted",
    "four_files_momentum": "four_files",
}
"""The generator of each model, a file in `files/`."""
FLEX = ("checkpoint_scalar", "checkpoint_vector", "load_embeds", "load_restores")
BUILTIN = tuple(sorted({*MODELS} - {*FLEX, *FOUR, "four_files_momentum"}))
"""The models that train on bare LiteRT."""


@dataclass(frozen=True)
class Dialect:
    """A generated file, with the description that its author would give.

    Attributes:
        path: The file.
        signatures: By role (`train`, `infer`, `parameters`, `restore`, `save`, `embed`, ...) the signature's `name`, and its
            own names of `x`, `y`, `loss`, `output` and `checkpoint_path`. Roles that the file lacks are missing.
        x_shape: The shape of one example.
        classes: The number of classes, or the number of target values.
        labels: `one_hot` (float32 `[rows, classes]`), `sparse` (int32 `[rows]`), `sparse_float` (float32 `[rows]`), or
            `values` (float32 `[rows, classes]`).
        rows: The rows of a batch; None for any number.
        flex: Whether it has Flex ops.
        weights: The names of the variables that its `parameters` would return, in the author's order.
        learning_rate: The step size.
        words: The number of words if x holds word numbers (int32); None for float32 x.
    """

    path: Path
    signatures: dict[str, dict[str, str]]
    x_shape: tuple[int, ...]
    classes: int
    labels: str
    rows: int | None
    flex: bool
    weights: tuple[str, ...]
    learning_rate: float
    words: int | None = None

    @property
    def content(self) -> bytes:
        return self.path.read_bytes()

    def batch(self, seed: int = 0, rows: int | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return x and y of a batch in the file's own form."""
        random, rows = np.random.default_rng(seed), self.rows or rows or 4
        x = random.normal(size=(rows, *self.x_shape)).astype(np.float32)
        if self.words is not None:
            x = random.integers(0, self.words, (rows, *self.x_shape)).astype(np.int32)
        numbers = random.integers(0, self.classes, rows)
        y: dict[str, NDArray[Any]] = {
            "one_hot": np.eye(self.classes, dtype=np.float32)[numbers],
            "sparse": numbers.astype(np.int32),
            "sparse_float": numbers.astype(np.float32),
            "values": random.normal(size=(rows, self.classes)).astype(np.float32),
        }
        return x, y[self.labels]


def generated(model: str) -> Dialect:
    """Return a model by name; the first call writes all uncached models of its kind in another process."""
    path = _folder(MODELS[model]) / f"{model}.tflite"
    if not path.exists():
        default_directory().mkdir(parents=True, exist_ok=True)
        with FileLock(default_directory() / "dialects.lock"):
            kind = {MODELS[own] for own in MODELS if (own in FLEX) == (model in FLEX)}
            _write([file for file in sorted(kind) if not _folder(file).exists()])
    facts = json.loads(path.with_suffix(".json").read_text())
    return Dialect(path, **{**facts, "x_shape": tuple(facts["x_shape"]), "weights": tuple(facts["weights"])})


def _folder(file: str) -> Path:
    return default_directory() / f"dialect-{file}-{_key(file)}"


def _write(files: list[str]) -> None:
    if not files:
        return
    with tempfile.TemporaryDirectory(dir=default_directory()) as temporary:
        EXPORTER.program(FOLDER / "__main__.py", temporary, *files)
        for file in files:
            (Path(temporary) / file).rename(_folder(file))


def _key(file: str) -> str:
    digest = hashlib.sha256(f"{version('tensorflow')} {version('keras')}".encode())
    for path in [*sorted(FOLDER.glob("*.py")), FOLDER / "files" / f"{file}.py"]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
