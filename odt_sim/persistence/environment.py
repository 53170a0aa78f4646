"""The versions and the machine behind a run, which a summary records so that runs from elsewhere can be compared."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import machine, python_version, system

PACKAGES = ("odt_sim", "ai-edge-litert", "numpy")
"""The packages whose versions a summary records: all that compute with weights."""


def environment() -> dict[str, str]:
    """Return the versions of `PACKAGES` and of Python, the platform and the processor of this process, by name."""
    return {
        **{package: _version(package) for package in PACKAGES},
        "Python": python_version(),
        "platform": f"{system()} {machine()}",
        "processor": processor(),
    }


@cache
def processor() -> str:
    """Return the name of this machine's processor, or its architecture where it has no name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else machine()


@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a source tree that is not installed
        return "not installed"
