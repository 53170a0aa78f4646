"""Export configured models in a subprocess and cache the files, without importing TensorFlow here.

TensorFlow takes seconds to start and half a gigabyte of memory, and its converter leaks memory.
"""

import hashlib
import json
import re
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from filelock import FileLock

from odt_sim._support.files import WITHOUT_LOCKS, cache_folder, write_file
from odt_sim._support.system import environment
from odt_sim.errors import ConfigurationError, ExportError, ExportWarning, transient
from odt_sim.export import installed_version
from odt_sim.model.contract.manifest import LORA_RANK
from odt_sim.model.contract.signatures import ON_EMBEDDINGS, parts_of

TERM_NAMES = ("contrastive", "distillation", "logit_shift", "mean_embedding", "not_true_distillation", "prototypes")
"""The names of the shipped terms, as in `odt_sim.export.terms.TERMS`, and of the capabilities that they add."""


ERROR_MARK = "odt_sim.export error: "  # prefix of the subprocess's error line
WARNING_MARK = "odt_sim.export warning: "  # prefix of each line with an `ExportWarning`
SETTINGS = {"name", "build", "loss", "optimizer", "batch_size", "seed"}
ADDED = ("lora_rank",)
"""Options that change the model before its export, see `add_adapters`."""
OPTIONS = (  # parameters of `export_model`, and options that change the model before
    *("loss_weights", "head", "class_weight", "task", "metrics", "train_groups", "embed", "gradient_offset", "terms"),
    "check",
    *ADDED,
)
_INSTALLED = {"site-packages", "dist-packages"}
LOG_LINE = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d.* [IWE] |[IWE]\d{4} |INFO: |WARNING: All log messages|To enable the following"
)
"""Log lines of TensorFlow and LiteRT, which say nothing about a failure."""

QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",
    "KERAS_BACKEND": "tensorflow",
    "PYTHONWARNINGS": "ignore",
}


def exported(spec: Mapping[str, Any], directory: Path | None = None) -> Path:
    """Return the `.tflite` file of a configured model; export it if it is not cached.

    The cache key covers the specification, the sources of the exporter and the build function, the files that the model is
    built from, and the versions of TensorFlow, Keras, LiteRT and the build function's package. Concurrent processes share
    one export. Each call repeats the export's warnings.

    Args:
        spec: A node of `conf/model` as plain values: `name`, `build` (`_target_` and arguments of a function that returns a
            Keras model, or a model and an example), `loss` and `optimizer` (`name` and settings), both None for a compiled
            model, `batch_size`, `seed`, and optionally `OPTIONS` and `sys_path`, directories to import the functions from.
        directory: The cache directory; None for `models` under `$ODT_SIM_CACHE` or `~/.cache/odt_sim`.

    Raises:
        ConfigurationError: A setting is missing.
        ExportError: The export failed, with the subprocess's message.
    """
    missing = sorted(SETTINGS - set(spec)) or sorted({"_target_"} - set(spec["build"]))
    if missing:
        raise ConfigurationError(f"model: missing {', '.join(missing)}; see conf/model for complete ones")
    path = (directory or default_directory()) / f"{_key(spec)}.tflite"
    try:
        if not _intact(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(path.with_suffix(".lock")):
                if not _intact(path):
                    content, messages = in_process(spec, "call model.build on its own to find the cause")
                    write_file(_warnings_file(path), "\n".join(messages).encode())
                    write_file(path, content)
                    write_file(_digest_file(path), _digest(path))
    except OSError as error:
        advice = "set ODT_SIM_CACHE to a writable directory"
        raise transient(ExportError(f"{path.parent}: cannot write the cache ({error.strerror}); {advice}")) from error
    warn(_warnings_file(path).read_text().splitlines())
    return path


def warn(messages: Sequence[str]) -> None:
    """Issue the warnings of an export."""
    for message in messages:
        warnings.warn(message, ExportWarning, stacklevel=3)


def _warnings_file(path: Path) -> Path:
    return path.with_suffix(".warnings")


def _digest_file(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).hexdigest().encode()


def _intact(path: Path) -> bool:
    """Return whether a file is cached and matches its digest."""
    digest = _digest_file(path)
    complete = all(file.exists() for file in (path, digest, _warnings_file(path)))
    return complete and digest.read_bytes() == _digest(path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that is released when the process exits; without flock, processes may export twice."""
    lock = FileLock(path, fallback_to_soft=False)
    try:
        lock.acquire()
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
    try:
        yield
    finally:
        lock.release()


def default_directory() -> Path:
    """Return the directory of the export cache."""
    return cache_folder("models")


def _key(spec: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode())
    for path in [*sorted(Path(__file__).parent.rglob("*.py")), *_sources(spec), *_build_files(spec)]:
        digest.update(path.read_bytes())
    builder = str(spec["build"]["_target_"]).partition(".")[0]
    for package in ("tensorflow", "keras", "ai-edge-litert", builder):
        digest.update(f"{package} {installed_version(package) or 'none'}".encode())
    return digest.hexdigest()[:32]


def _sources(spec: Mapping[str, Any]) -> list[Path]:
    """Return the source files that may affect the build function and the user's losses, optimizer and terms."""
    loss, optimizer = spec.get("loss"), spec.get("optimizer") or {}
    losses = loss.values() if isinstance(loss, Mapping) else [loss]
    paths = [spec["build"]["_target_"], *losses, optimizer.get("name"), *(spec.get("terms") or ())]
    sources = [_sources_of(path, spec) for path in paths if isinstance(path, str) and "." in path]
    return sorted({path for found in sources for path in found})


def _sources_of(target: str, spec: Mapping[str, Any]) -> list[Path]:
    """Return the source files that may affect a function or class, found without importing it.

    For a user's module: all Python files of its folder, of direct subfolders and of its package. For an installed module:
    only the module, because its helpers change with the version.
    """
    module, top = _module(target, spec)
    if module is None or top is None:
        return []
    if top == Path(__file__).parents[1] or _INSTALLED & set(top.parts):
        return [module]
    beside = {*top.parent.glob("*.py"), *top.parent.glob("*/*.py"), *(top.rglob("*.py") if top.is_dir() else ())}
    return sorted(path for path in beside if path.is_file())


def _build_files(spec: Mapping[str, Any]) -> list[Path]:
    """Return the files named by the build function's arguments, such as weights, and the contents of SavedModels."""
    named = [Path(value).expanduser() for value in spec["build"].values() if isinstance(value, str)]
    saved = [path for folder in named if (folder / "saved_model.pb").is_file() for path in sorted(folder.rglob("*"))]
    return [path for path in [*named, *saved] if path.is_file()]


def _module(target: str, spec: Mapping[str, Any]) -> tuple[Path | None, Path | None]:
    """Return the file of the module of a function or class, and the file or folder of its outermost package."""
    search: Sequence[str] | None = [*spec.get("sys_path", ()), *sys.path]
    module, top = None, None
    name = ""
    for part in target.split("."):
        name = f"{name}.{part}" if name else part
        located = PathFinder.find_spec(name, search)
        if located is None and not module and not top:  # import hooks, as used by editable installations
            located = next(filter(None, (finder.find_spec(name, None) for finder in sys.meta_path)), None)
        if located is None:
            break
        search = located.submodule_search_locations
        origin = Path(located.origin) if located.origin and located.origin.endswith(".py") else None
        module = origin or module
        top = top or (Path(next(iter(search))) if search else origin)
        if search is None:
            break
    return module, top


def in_process(spec: Mapping[str, Any], advice: str) -> tuple[bytes, list[str]]:
    """Run `python -m odt_sim.export` on a specification, and return the file's content and the warnings.

    The temporary folder ensures that leftovers are removed even if the process is killed.

    Args:
        spec: The specification of an export (see `exported`) or of a rewriting (see `odt_sim.export.__main__`).
        advice: What to do if the process crashes.

    Raises:
        ExportError: The process failed, with its message.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.tflite"
        child = run(spec, file)
        if child.returncode != 0:
            raise _failure(spec["name"], child.returncode, child.stderr, advice)
        lines = child.stderr.splitlines()
        return file.read_bytes(), [line.removeprefix(WARNING_MARK) for line in lines if line.startswith(WARNING_MARK)]


def run(spec: Mapping[str, Any], path: Path) -> "subprocess.CompletedProcess[str]":
    """Run the subprocess, which writes a file; if killed, it leaves temporary files next to the file."""
    return subprocess.run(
        [sys.executable, "-m", "odt_sim.export", str(path)],
        input=json.dumps(spec),
        capture_output=True,
        text=True,
        errors="replace",
        env=environment({**QUIET, "TMPDIR": str(path.parent)}),
        check=False,
    )


def _failure(name: str, code: int, errors: str, advice: str) -> ExportError:
    """Return the error of an export process: its own error line, or how it ended and the last line of its output."""
    lines = [line.strip() for line in errors.splitlines()]
    own = [line for line in lines if line.startswith(ERROR_MARK)]
    if own:
        return ExportError(own[-1].removeprefix(ERROR_MARK))
    last = next((line for line in reversed(lines) if line and not LOG_LINE.match(line)), None)
    output = f" after printing {last[:200]!r}" if last else ""
    if code == -signal.SIGKILL:
        ending, advice = "was killed by SIGKILL", "free memory, or use a smaller model.batch_size"
    elif code < 0:
        ending = f"crashed with {signal.Signals(-code).name}"
    else:
        ending = f"ended with exit code {code}"
    return transient(ExportError(f"model {name!r}: the export process {ending}{output}; {advice}"))


def with_needs(spec: Mapping[str, Any], missing: Set[str]) -> dict[str, Any]:
    """Return the specification of an export with the options that add missing capabilities.

    Capabilities that no option adds, such as plain SGD, change nothing: the strategy then rejects the model.

    Args:
        spec: The specification, see `odt_sim.export.cache.exported`.
        missing: The names of the missing capabilities, see `TrainableModel.capabilities`.
    """
    groups = [name.removeprefix("train_") for name in sorted(missing) if name.startswith("train_")]
    lists = {
        "train_groups": [group for group in groups if parts_of(group)],
        "terms": [name for name in TERM_NAMES if name in missing],
    }
    ranks = [int(name.removeprefix(LORA_RANK)) for name in sorted(missing) if name.startswith(LORA_RANK)]
    flags = {
        "embed": ON_EMBEDDINGS,
        "gradient_offset": ("gradient_offset", "set_gradient_offset"),
    }
    return {
        **spec,
        **{option: [*(spec.get(option) or ()), *added] for option, added in lists.items() if added},
        **{option: True for option, names in flags.items() if not missing.isdisjoint(names)},
        **({"lora_rank": ranks[0]} if ranks and spec.get("lora_rank") is None else {}),
    }
