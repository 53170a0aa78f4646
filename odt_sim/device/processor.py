"""Capabilities of this machine's processor."""

from functools import cache
from pathlib import Path

from odt_sim.control_groups import lines


@cache
def has_avx512(described: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether the processor has AVX-512, according to Linux; False on other systems.

    Args:
        described: Linux's description of the processors.
    """
    return any(line.startswith("flags") and "avx512f" in line.split() for line in lines(described))
