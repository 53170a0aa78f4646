"""Detection of changes to odt_sim, or to a user's strategy, aggregator or attack, since earlier rounds."""

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary

from odt_sim._support.files import write_file
from odt_sim.aggregators.base import Aggregator
from odt_sim.attacks.base import Attack
from odt_sim.errors import SimulationError
from odt_sim.persistence.environment import own_code
from odt_sim.persistence.run_folder import CODE, RunFolder
from odt_sim.simulation.executors.job import Job
from odt_sim.simulation.run.run_settings import text_of
from odt_sim.strategies.base import Strategy

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

_seen: WeakKeyDictionary[type, dict[str, tuple[Any, str | None]]] = WeakKeyDictionary()
"""The constants that were described, with their texts, by class and name."""


def record_code(job: Job, directory: Path, committed: int, warn: Callable[[str], None]) -> None:
    """Write digests of odt_sim and of the user's classes into the run's folder, after warnings about changed code.

    Args:
        job: The run's job.
        directory: The run's folder.
        committed: The last committed round; 0 for none.
        warn: Receives a line for each change.

    Raises:
        FileError: The file cannot be written.
    """
    owners, digests = _owners(job), class_digests(job)
    before = RunFolder(directory).code() if committed else {}
    if committed and before.get("odt_sim") != own_code():
        warn(
            f"odt_sim has changed since round {committed}: the changelog lists settings whose results changed; for "
            "results of a single version, start a new run in another folder"
        )
    for key, digest in digests.items():
        if before.get("python") == PYTHON and before.get(key, digest) != digest:
            warn(
                f"{key} {owners[key].name}: its code has changed since round {committed}; for results of a single "
                "version, start a new run in another folder"
            )
    write_file(directory / CODE, json.dumps({"odt_sim": own_code(), "python": PYTHON, **digests}).encode())


def class_digests(job: Job) -> dict[str, str]:
    """Return the digests of the user's classes among the job's strategy, aggregator and attack."""
    return {key: digest for key, owner in _owners(job).items() if (digest := code_digest(owner))}


def imported_digests(job: Job) -> dict[str, str]:
    """Return the digests of the classes that workers import in the same way as this process.

    Import hooks of this process alone, such as pytest's for assertions, compile different code.
    """
    owners = _owners(job)
    modules = {key: [sys.modules.get(kind.__module__) for kind in _classes(owner)] for key, owner in owners.items()}
    loaders = {
        key: {type(getattr(getattr(each, "__spec__", None), "loader", None)) for each in loaded}
        for key, loaded in modules.items()
    }
    return {key: digest for key, digest in class_digests(job).items() if loaders[key] <= {SourceFileLoader}}


def check_classes(job: Job, expected: Mapping[str, str]) -> None:
    """Check that a worker, which imports modules itself, has the same classes as the process that started it.

    Raises:
        SimulationError: A class differs.
    """
    found = class_digests(job)
    for key, digest in expected.items():
        if found.get(key) != digest:
            raise SimulationError(
                f"{key} {_owners(job)[key].name}: workers import different code than this process, since its file or "
                "class has changed; reload it with importlib.reload, or restart Python"
            )


def _owners(job: Job) -> dict[str, Strategy | Aggregator | Attack]:
    return {"strategy": job.strategy, "aggregator": job.aggregator, "attack": job.attack}


def code_digest(owner: Any) -> str | None:
    """Return a digest of the methods and constants of an object's classes outside odt_sim; None without such a class.

    The digest covers bytecode, which also exists in notebooks and ignores comments, but depends on the version of
    Python.
    """
    text = "\n".join(line for kind in _classes(owner) for line in _described(kind))
    return sha256(text.encode()).hexdigest()[:12] if text else None


def _classes(owner: Any) -> list[type]:
    known = {"odt_sim", *sys.stdlib_module_names}
    return [kind for kind in type(owner).__mro__ if kind.__module__.partition(".")[0] not in known]


def _described(kind: type) -> Iterator[str]:
    for name, member in sorted(vars(kind).items()):
        function = inspect.unwrap(getattr(member, "fget", None) or getattr(member, "__func__", member))
        code = getattr(function, "__code__", None)
        text = _text(code) if code else None if name.startswith("__") else _constant(kind, name, member)
        if text is not None:
            yield f"{kind.__qualname__}.{name} {text}"


def _constant(kind: type, name: str, value: Any) -> str | None:
    """Return the first text of a class's constant: a run may keep results in a list or mapping of the class."""
    seen = _seen.setdefault(kind, {})
    if name not in seen or seen[name][0] is not value:
        seen[name] = value, text_of(value)
    return seen[name][1]


def _text(constant: Any) -> str:
    """Return a bytecode constant as text that is the same in every process."""
    if isinstance(constant, CodeType):
        constants = ", ".join(map(_text, constant.co_consts))
        return f"{constant.co_code.hex()} {constant.co_names} [{constants}]"
    return str(sorted(map(repr, constant))) if isinstance(constant, frozenset) else repr(constant)
