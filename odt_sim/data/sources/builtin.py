"""Data sources; each returns a checked `Dataset`."""

import importlib
import importlib.util
import inspect
import logging
import os
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from odt_sim._support.files import cache_folder
from odt_sim._support.text import one_line
from odt_sim._support.user_code import user_code_errors
from odt_sim.data.checks.dataset_checks import check
from odt_sim.data.dataset import Array, Classes, Dataset
from odt_sim.data.store.columns import Columns, Rows, only, rows_of
from odt_sim.errors import DataError, transient
from odt_sim.model.contract.names import parts

PROGRAM = Path(__file__).parents[2] / "export" / "keras_download.py"
_log = logging.getLogger(__name__)
_INFINITE = -1  # tf.data.INFINITE_CARDINALITY


def digits() -> Dataset:
    """Return 1,797 handwritten digits, which `digits.npz` in this package contains.

    `x` is `[1797, 8, 8, 1]` float32 in 0..1, `y` `[1797]` int32 in 0..9. They are the test set of Alpaydin and Kaynak's
    "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998, https://doi.org/10.24432/C50P49,
    licensed under CC BY 4.0.
    """
    arrays = read_npz(Path(__file__).with_name("digits.npz"), ["x", "y"])
    return check(Dataset("digits", arrays["x"][..., np.newaxis] / 16, arrays["y"].astype(np.int64), classes=10))


def npz(
    path: str | os.PathLike[str],
    x: str = "x",
    y: str = "y",
    users: str | None = None,
    classes: Classes = None,
    sequences: str | None = None,
    standardize: bool = False,
) -> Dataset:
    """Read a data set from an `.npz` file, without unpickling, and convert it by `odt_sim.data.checks.dataset_checks.check`.

    Args:
        path: The file, as written by `numpy.savez`.
        x: The name of the array of inputs; if it does not exist, the arrays `<x>_<name>` are several inputs.
        y: The name of the array of targets; if it does not exist, the arrays `<y>_<name>` are several targets.
        users: The name of the array of user ids; None for none.
        classes: The number of classes, for several targets a mapping by name; by default the largest integer label plus
            one, and none for floats.
        sequences: The name of the array with the recording of each example, in chronological order; None for none.
        standardize: Whether each device standardizes its inputs to mean 0 and standard deviation 1 over its own
            training examples.

    Raises:
        DataError: The file is missing, is not an `.npz` file, is damaged, lacks an array, or has unusable values.
    """
    path = Path(path).expanduser()
    others = [key for key in (users, sequences) if key is not None]
    arrays = read_npz(path, [x, y, *others], prefixes=(x, y))
    rows = {name: array for name, array in arrays.items() if name in (x, y) or name not in others}
    return check(
        Dataset(
            path.stem,
            rows_of(parts(rows, x)),
            rows_of(parts(rows, y)),
            None if users is None else arrays[users],
            classes,
            None if sequences is None else arrays[sequences],
            standardize=standardize,
        )
    )


def read_npz(path: str | os.PathLike[str], keys: Sequence[str], prefixes: Sequence[str] = ()) -> dict[str, Array]:
    """Read named arrays from an `.npz` file, without unpickling.

    Args:
        path: The file.
        keys: The names of the arrays.
        prefixes: The names for which all arrays `<name>_...` are read if no array has exactly that name.

    Raises:
        DataError: The file is missing, is not an `.npz` file, is damaged, or lacks an array.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "no such file"
        raise DataError(f"data {path}: {what}; give the path of an .npz file")
    if not zipfile.is_zipfile(path):
        raise DataError(f"data {path}: is not an .npz file, or is damaged; write it with numpy.savez")
    try:
        with np.load(path, allow_pickle=False) as file:
            names = [name for key in keys for name in _found(path, file.files, key, parts_allowed=key in prefixes)]
            return {name: _read_array(path, file, name) for name in names}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise DataError(f"data {path}: is damaged ({error}); write it again with numpy.savez") from error


def _found(path: Path, files: Sequence[str], key: str, *, parts_allowed: bool) -> list[str]:
    """Return the name of an array in a file, or the names of its parts."""
    several = [name for name in files if name.startswith(f"{key}_")] if parts_allowed else []
    names = [key] if key in files else several
    if not names:
        raise DataError(f"data {path}: has no array {key!r}; found: {', '.join(files) or 'none'}")
    return names


def _read_array(path: Path, file: Any, key: str) -> Array:
    try:
        array = file[key]
    except ValueError as error:  # a pickled array, or a damaged header
        raise DataError(
            f"data {path}: array {key!r} cannot be read ({one_line(error)}); "
            "pickled (object) arrays are not supported; store plain numbers"
        ) from error
    if not isinstance(array, np.ndarray):  # a member other than .npy is returned as bytes
        raise DataError(f"data {path}: {key!r} is not an array; write the file with numpy.savez")
    return array


def keras_dataset(name: str) -> Dataset:
    """Return a data set of `keras.datasets`, with its train and test parts merged.

    The first use downloads it in a subprocess to the cache folder, `$ODT_SIM_CACHE` or `~/.cache/odt_sim`. Texts
    (`imdb`, `reuters`) are truncated or left-padded to 200 tokens of the 10,000 most frequent words.

    Args:
        name: The name, such as `mnist`, `fashion_mnist`, `cifar10`, `cifar100`, `imdb` or `california_housing`.

    Raises:
        DataError: Keras is not installed, has no such data set, or the download failed.
    """
    arrays = read_npz(cached_keras_file(name), ["x", "y"])
    return check(Dataset(name, arrays["x"], arrays["y"]))


def function(target: str, **arguments: Any) -> Dataset:
    """Call a Python function that returns a `Dataset`, `(x, y)`, `(x, y, users)`, a mapping with these keys or a `tf.data`.

    Several inputs or targets are a mapping of arrays by name, or a tuple of arrays, instead of `x` or `y`.

    Args:
        target: `package.module.name`, or `path/to/file.py:name`.
        **arguments: The function's arguments.

    Raises:
        DataError: The function cannot be found, does not accept the arguments, fails, or returns something else.
    """
    call = _find(target)
    where = f"data {target}"
    try:
        inspect.signature(call).bind(**arguments)
    except TypeError as error:
        raise DataError(f"{where}: {error}; the signature of the function is {inspect.signature(call)}") from error
    with user_code_errors(call, f"{where}: failed", DataError):
        result = call(**arguments)
    if isinstance(result, Dataset):
        return check(result)
    if hasattr(result, "as_numpy_iterator"):
        with user_code_errors(call, f"{where}: failed", DataError):  # its elements are computed here
            return tf_data(result)
    if isinstance(result, tuple) and len(result) in (2, 3):
        return check(Dataset(call.__name__, *result))
    if isinstance(result, Mapping):
        return check(_from_mapping(call.__name__, result, where))
    raise DataError(f"{where}: returned a {type(result).__name__}, expected a Dataset, (x, y) or (x, y, users)")


def _from_mapping(name: str, result: Mapping[str, Any], where: str) -> Dataset:
    keys = [field.name for field in fields(Dataset) if field.name != "name"]
    if not {"x", "y"} <= result.keys() <= {*keys}:
        raise DataError(
            f"{where}: returned a mapping of {', '.join(map(str, result))}; expected the keys x, y, and optionally "
            f"{', '.join(keys[2:])}"
        )
    return Dataset(name, **result)


def _find(target: str) -> Callable[..., Any]:
    path, _, name = target.rpartition(":" if ":" in target else ".")
    where = f"data {target}"
    if not path or not name:
        raise DataError(f"{where}: expected package.module.name or path/to/file.py:name")
    try:
        module = _load_file(Path(path).expanduser()) if ":" in target else importlib.import_module(path)
    except (ImportError, SyntaxError, FileNotFoundError) as error:
        raise DataError(f"{where}: cannot import {path} ({error}); check the name, and PYTHONPATH") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise DataError(f"{where}: {path} has no function {name!r}; check the name")
    return function  # type: ignore[no-any-return]


def _load_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"odt_sim_file_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError("not a .py file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    return module


def tf_data(dataset: Any, x: str = "x", y: str = "y", users: str | None = None, classes: int | None = None) -> Dataset:
    """Convert a finite `tf.data.Dataset` of single examples: `(x, y)`, `(x, y, user)` or mappings.

    Several inputs or targets are a mapping or a tuple instead of `x` or `y`, as in Keras.

    Args:
        dataset: The data set; all elements are read into memory.
        x: The key of the input in mappings.
        y: The key of the target.
        users: The key of the user id; None for none.
        classes: The number of classes; by default the largest integer label plus one.

    Raises:
        DataError: The object is not such a data set, is infinite or lacks a key, or its elements differ in shape.
    """
    if not hasattr(dataset, "as_numpy_iterator"):
        raise DataError(f"data: expected a tf.data.Dataset, found a {type(dataset).__name__}")
    if int(dataset.cardinality()) == _INFINITE:
        raise DataError("data tf_data: is infinite; limit it: dataset.take(1000)")
    keys = [key for key in (x, y, users) if key is not None]
    try:
        rows = [_row(element, keys) for element in dataset.as_numpy_iterator()]
        inputs, targets, *owners = (_stacked(column) for column in zip(*rows, strict=True))
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(
            f"data tf_data: expected elements (x, y) of one shape ({type(error).__name__}: {error}); "
            "name their keys, or remove batches: dataset.unbatch()"
        ) from error
    names = only(owners[0], "data tf_data: users", "give one") if owners else None
    if names is not None and names.dtype.kind not in "iu":
        names = np.char.decode(names.astype(np.bytes_), "utf-8")
    return check(Dataset("tf_data", inputs, targets, names, classes))


def _stacked(values: Sequence[Any]) -> Rows:
    """Return values stacked to one array, or to several if they are mappings or tuples."""
    first = values[0]
    if isinstance(first, tuple):
        return Columns.of(tuple(map(np.stack, zip(*values, strict=True))), "data tf_data")
    if isinstance(first, Mapping):
        return rows_of({name: np.stack([value[name] for value in values]) for name in first})
    return np.stack(values)


def _row(element: Any, keys: list[str]) -> tuple[Any, ...]:
    return tuple(element[key] for key in keys) if isinstance(element, Mapping) else tuple(element)


def cached_keras_file(name: str) -> Path:
    """Return the `.npz` file with the arrays `x` and `y` of a Keras data set; the first use downloads it.

    Raises:
        DataError: Keras is not installed, has no such data set, or the download failed.
        FileError: There is no home folder.
    """
    if not name.isidentifier():
        raise DataError(f"data {name}: is not the name of a Keras data set; choose one such as mnist or cifar10")
    path = cache_folder("data") / f"keras_{name}.npz"
    if not path.exists():
        _download(name, path)
    return path


def _download(name: str, path: Path) -> None:
    if importlib.util.find_spec("keras") is None:
        raise DataError(
            f"data {name}: needs Keras to download it, which is not installed; run: pip install 'odt_sim[export]'"
        )
    _log.info("downloading the Keras data set %s into %s", name, path.parent)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            unfinished = Path(folder) / path.name
            # By path and with -P, because the subprocess imports only Keras and numpy.
            command = [sys.executable, "-P", str(PROGRAM), name, str(unfinished)]
            environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
            done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
            if not done.returncode:
                unfinished.replace(path)  # atomic, even if two processes download at once
                return
    except OSError as error:
        raise transient(
            DataError(f"data {name}: cannot be stored in {path.parent} ({error}); set ODT_SIM_CACHE to another folder")
        ) from error
    reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    raise transient(
        DataError(f"data {name}: Keras failed to load it ({reason}); check the name and the network, then try again")
    )
