"""The versions and the machine of a run, which a summary records so that runs on other machines can be compared."""

from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import machine, python_version, system

from odt_sim._support.system import lines

PACKAGES = ("odt_sim", "ai-edge-litert", "numpy")
"""The packages whose versions a summary records: all packages that compute with weights."""

_DECIDING = ("aggregators", "attacks", "data", "device", "fleet", "metrics", "model", "simulation", "strategies")
"""The parts of odt_sim that decide results; exports are told apart by their files."""


def environment() -> dict[str, str]:
    """Return the versions of `PACKAGES` and of Python, `code`, the platform and the processor of this process, by name."""
    return {
        **{package: version_of(package) for package in PACKAGES},
        "code": own_code(),
        "Python": python_version(),
        "platform": f"{system()} {machine()}",
        "processor": processor(),
    }


@cache
def own_code() -> str:
    """Return 12 digits that are equal for equal code of odt_sim: between releases, its version stays the same."""
    root, digest = Path(__file__).parents[1], sha256()
    for path in sorted(path for part in _DECIDING for path in (root / part).rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


@cache
def processor() -> str:
    """Return the name of this machine's processor, or its architecture if it has no name."""
    described = lines(Path("/proc/cpuinfo"))
    names = [line.partition(":")[2].strip() for line in described if line.startswith("model name")]
    return names[0] if names else machine()


@cache
def version_of(package: str) -> str:
    """Return the version of a package; `not installed` for a source tree."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
