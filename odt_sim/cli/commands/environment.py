"""The output of `odt-sim doctor --environment`: versions, cores, memory, and missing packages."""

import os
import platform
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

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


def environment() -> dict[str, Any]:
    """Return the environment of this machine and Python as values for JSON.

    Apart from importing Ray, nothing is started or changed.
    """
    required, extras = list[Requirement](), defaultdict[str, list[Requirement]](list)
    for requirement in map(Requirement, requires("odt_sim") or ()):
        if requirement.marker is None:
            required.append(requirement)
        elif (name := str(requirement.marker).partition('extra == "')[2].partition('"')[0]) not in NOT_LISTED:
            extras[name].append(requirement)
    cache = cache_folder("")
    existing = next(path for path in (cache, *cache.absolute().parents) if path.exists())
    available = [int(line.split()[1]) for line in lines(Path("/proc/meminfo")) if line.startswith("MemAvailable:")]
    address, problem = _ray()
    return {
        "machine": this_machine(),
        "versions": {"odt_sim": version("odt_sim"), **_versions(required)},
        "cores": cores(),
        "machine_cores": os.cpu_count() or 1,
        "memory_bytes": memory_limit(),
        "available_bytes": available[0] << 10 if available else None,
        "extras": {name: extra(name, packages) for name, packages in extras.items()},
        "chromium": next(filter(None, map(shutil.which, CHROMIUM)), None),
        "flex_python": _flex_python(),
        "ray_address": address,
        "ray_problem": problem,
        "cache": str(cache),
        "cache_bytes": sum(path.lstat().st_size for path in cache.rglob("*") if path.is_file()),
        "cache_free_bytes": shutil.disk_usage(existing).free,
    }


def print_environment(described: Mapping[str, Any], console: Console) -> None:
    """Print the values of `environment`, with the install command of each missing extra."""
    available, ray = described["available_bytes"], described["ray_address"]
    rows = {
        "machine": described["machine"],
        "system": f"{platform.platform()}, {sys.executable}",
        "cores": f"{described['cores']} of {described['machine_cores']}",
        "memory": _size(described["memory_bytes"]) + (f", {_size(available)} available now" if available else ""),
        "packages": ", ".join(f"{name} {number}" for name, number in described["versions"].items()),
        "cache": f"{described['cache']}: {_size(described['cache_bytes'])}, {_size(described['cache_free_bytes'])} free; set "
        "ODT_SIM_CACHE to move it",
        "Ray cluster": described["ray_problem"]
        or (f"{ray}; join it by backend.address=auto" if ray else "none; backend.address=local starts Ray for a run"),
        "Flex ops": described["flex_python"]
        or f"no TensorFlow 2.19; in a separate environment run: pip install 'odt_sim[flex]', then set {PYTHON} to its "
        "bin/python",
        "Chromium": described["chromium"]
        or "not found; try pages for phones in another browser, or on Debian: apt-get install chromium",
    }
    grid = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, text in rows.items():
        grid.add_row(Text(name, style="bold"), Text(text))
    extras = Table("extra", "", "packages, and how to install what is missing", box=None, padding=(0, 2, 0, 0))
    for name, packages in described["extras"].items():
        if packages["missing"]:
            missing = f"{', '.join(packages['missing'])}; run: {packages['install']}"
            extras.add_row(name, Text("missing", style="yellow"), Text(missing))
        else:
            installed = ", ".join(f"{package} {number}" for package, number in packages["installed"].items())
            extras.add_row(name, Text("installed", style="green"), Text(installed))
    console.print(grid)
    console.print(extras)


def extra(name: str, packages: Iterable[Requirement]) -> dict[str, Any]:
    """Return an extra: the versions of its fitting packages, its missing ones, and the command that installs it."""
    packages = [*packages, *(further for package in packages for further in _of_extras(package))]
    versions = _versions(packages)
    fitting = {
        package.name: versions[package.name]
        for package in packages
        if package.name in versions and package.specifier.contains(versions[package.name])
    }
    missing = [
        f"{package.name}{package.specifier}"
        + (f" (found {versions[package.name]})" if package.name in versions else "")
        for package in packages
        if package.name not in fitting
    ]
    return {
        "installed": fitting,
        "missing": missing,
        "install": f"pip install 'odt_sim[{name}]'" if missing else None,
    }


def _of_extras(requirement: Requirement) -> list[Requirement]:
    """Return the requirements of a package's extras, such as of `ray[default]`; empty if it is not installed."""
    try:
        needs = map(Requirement, requires(requirement.name) or ())
    except PackageNotFoundError:
        return []
    markers = [{"extra": wanted} for wanted in requirement.extras]
    return [each for each in needs if each.marker and any(map(each.marker.evaluate, markers))]


def _versions(packages: Iterable[Requirement]) -> dict[str, str]:
    """Return the versions of the packages that are installed."""
    found = {}
    for package in packages:
        try:
            found[package.name] = version(package.name)
        except PackageNotFoundError:
            continue
    return found


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


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
