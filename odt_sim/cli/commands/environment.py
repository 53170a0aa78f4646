"""The output of `odt-sim doctor --environment`: versions, cores, memory, and missing packages."""

import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from rich.console import Console
from rich.table import Table
from rich.text import Text

from odt_sim._support.files import cache_folder
from odt_sim._support.system import cores, lines, memory_limit
from odt_sim.device.engines.flex import PYTHON, find_python
from odt_sim.errors import ConfigurationError, SimulationError
from odt_sim.fleet.calibration import this_machine

NOT_LISTED = ("dev", "docs", "flex")
"""Extras that are not listed: those for work on odt_sim itself, and `flex`, which needs a separate environment."""

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True)
class Extra:
    """An extra of odt_sim.

    Attributes:
        installed: The versions of its fitting packages, by name.
        missing: Its other packages, such as `pandas>=2.2`, with the installed version if it does not fit.
        install: The command that installs the extra; None if nothing is missing.
    """

    installed: Mapping[str, str]
    missing: tuple[str, ...]
    install: str | None


@dataclass(frozen=True)
class Environment:
    """The environment of odt_sim.

    Attributes:
        machine: The processor, Python and LiteRT.
        versions: The versions of odt_sim and of the packages that it always needs.
        cores: Cores that this process may use.
        machine_cores: Cores of the machine.
        memory_bytes: The memory that this process may use.
        available_bytes: The memory that is available now; None outside Linux.
        extras: The extras by name.
        chromium: The browser's path, or None.
        flex_python: The Python with TensorFlow 2.19, or None.
        ray_address: The cluster that `backend.address=auto` joins, or None.
        ray_problem: Why that cluster cannot be joined, or None.
        cache: The folder of exported models and measurements.
        cache_bytes: The size of the cache.
        cache_free_bytes: Free space on the cache's disk.
    """

    machine: str
    versions: Mapping[str, str]
    cores: int
    machine_cores: int
    memory_bytes: int
    available_bytes: int | None
    extras: Mapping[str, Extra]
    chromium: str | None
    flex_python: str | None
    ray_address: str | None
    ray_problem: str | None
    cache: str
    cache_bytes: int
    cache_free_bytes: int

    def as_json(self) -> dict[str, object]:
        """Return the environment as values for JSON."""
        return asdict(self)


def environment() -> Environment:
    """Return the environment of this machine and Python; apart from importing Ray, nothing is started or changed."""
    cache = cache_folder("")
    address, problem = _ray()
    return Environment(
        machine=this_machine(),
        versions={"odt_sim": version("odt_sim"), **_versions(requirement.name for requirement in _required())},
        cores=cores(),
        machine_cores=os.cpu_count() or 1,
        memory_bytes=memory_limit(),
        available_bytes=_available_memory(),
        extras={name: extra(name, packages) for name, packages in _extras().items()},
        chromium=next(filter(None, map(shutil.which, CHROMIUM)), None),
        flex_python=_flex_python(),
        ray_address=address,
        ray_problem=problem,
        cache=str(cache),
        cache_bytes=sum(path.lstat().st_size for path in cache.rglob("*") if path.is_file()),
        cache_free_bytes=shutil.disk_usage(_existing(cache)).free,
    )


def print_environment(found: Environment, console: Console) -> None:
    """Print an environment, with the install command of each missing extra."""
    available = "" if found.available_bytes is None else f", {_size(found.available_bytes)} available now"
    rows = {
        "machine": found.machine,
        "system": f"{platform.platform()}, {sys.executable}",
        "cores": f"{found.cores} of {found.machine_cores}",
        "memory": f"{_size(found.memory_bytes)}{available}",
        "packages": ", ".join(f"{name} {number}" for name, number in found.versions.items()),
        "cache": f"{found.cache}: {_size(found.cache_bytes)}, {_size(found.cache_free_bytes)} free; set ODT_SIM_CACHE "
        "to move it",
        "Ray cluster": _ray_text(found),
        "Flex ops": found.flex_python
        or f"no TensorFlow 2.19; in a separate environment run: pip install 'odt_sim[flex]', then set {PYTHON} to its "
        "bin/python",
        "Chromium": found.chromium
        or "not found; try pages for phones in another browser, or on Debian: apt-get install chromium",
    }
    grid = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, text in rows.items():
        grid.add_row(Text(name, style="bold"), Text(text))
    console.print(grid)
    console.print(_extras_table(found.extras))


def _extras_table(extras: Mapping[str, Extra]) -> Table:
    table = Table("extra", "", "packages, and how to install what is missing", box=None, padding=(0, 2, 0, 0))
    for name, found in extras.items():
        packages = ", ".join(f"{package} {number}" for package, number in found.installed.items())
        if found.install is None:
            table.add_row(name, Text("installed", style="green"), Text(packages))
        else:
            lacking = f"{', '.join(found.missing)}; run: {found.install}"
            table.add_row(name, Text("missing", style="yellow"), Text(lacking))
    return table


def _ray_text(found: Environment) -> str:
    if found.ray_address is None:
        return "none on this machine; backend.address=local starts Ray for a run"
    return found.ray_problem or f"{found.ray_address}; join it by backend.address=auto"


def _required() -> list[Requirement]:
    """Return the packages that odt_sim always needs."""
    return [requirement for requirement in _requirements() if requirement.marker is None]


def _extras() -> dict[str, list[Requirement]]:
    """Return the packages of each extra except `NOT_LISTED`."""
    extras: dict[str, list[Requirement]] = {}
    for requirement in _requirements():
        if requirement.marker is not None:
            name = str(requirement.marker).partition('extra == "')[2].partition('"')[0]
            if name not in NOT_LISTED:
                extras.setdefault(name, []).append(requirement)
    return extras


def _requirements() -> Iterator[Requirement]:
    return map(Requirement, requires("odt_sim") or ())


def extra(name: str, packages: Sequence[Requirement]) -> Extra:
    """Return the installed and missing packages of an extra."""
    packages = [*packages, *(inner for each in packages for inner in _inner(each))]
    found = _versions(requirement.name for requirement in packages)
    fitting = {each.name for each in packages if each.name in found and each.specifier.contains(found[each.name])}
    missing = tuple(_lacking(each, found.get(each.name)) for each in packages if each.name not in fitting)
    installed = {package: number for package, number in found.items() if package in fitting}
    return Extra(installed, missing, f"pip install 'odt_sim[{name}]'" if missing else None)


def _inner(requirement: Requirement) -> list[Requirement]:
    """Return the requirements of a package's extras, such as of `ray[default]`; empty if it is not installed."""
    try:
        needs = map(Requirement, requires(requirement.name) or ())
    except PackageNotFoundError:
        return []
    return [
        each
        for each in needs
        if each.marker and any(each.marker.evaluate({"extra": wanted}) for wanted in requirement.extras)
    ]


def _lacking(requirement: Requirement, found: str | None) -> str:
    return f"{requirement.name}{requirement.specifier}{f' (found {found})' if found else ''}"


def _versions(names: Iterator[str]) -> dict[str, str]:
    """Return the versions of the packages that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _available_memory() -> int | None:
    found = lines(Path("/proc/meminfo"))
    kilobytes = [int(line.split()[1]) for line in found if line.startswith("MemAvailable:")]
    return kilobytes[0] << 10 if kilobytes else None


def _flex_python() -> str | None:
    try:
        return find_python()
    except ConfigurationError:
        return None


def _ray() -> tuple[str | None, str | None]:
    """Return the address of the cluster that `auto` joins, and why it does not answer; None for either."""
    from odt_sim.simulation.executors.ray.cluster import check_answers, running_address

    address = running_address()
    try:
        if address is not None:
            check_answers(address)
    except SimulationError as error:
        return address, str(error)
    return address, None


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
