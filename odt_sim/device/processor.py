"""What this machine's processor can do."""

from functools import cache
from pathlib import Path

from odt_sim.control_groups import lines


@cache
def has_avx512(described: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether it has AVX-512, as far as Linux tells; False elsewhere.

    Args:
        described: Linux' description of the processors.
    """
    return any(line.startswith("flags") and "avx512f" in line.split() for line in lines(described))
