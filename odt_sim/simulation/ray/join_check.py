"""Whether a cluster can be joined, found out by a process of its own: where it cannot, Ray may write, wait or abort."""

import re
import subprocess
import sys

SECONDS = 25

JOIN = """
import logging, os, sys, ray
try:
    ray.init(sys.argv[1], log_to_driver=False, logging_level=logging.ERROR)
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}")
os._exit(0)
"""


def why_not(address: str) -> str | None:
    """Returns why this machine cannot join a cluster and what to do, in one line; None where it can.

    Args:
        address: `auto` or `host:port`.
    """
    command = [sys.executable, "-c", JOIN, address]
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"cannot reach Ray (no answer within {SECONDS} s); start a cluster (ray start --head), or use local"
    return _explained(child.stderr) if child.returncode else None


def _explained(told: str) -> str:
    versions = re.findall(r"(?:Ray|Python): (\S+)", told)
    if "Version mismatch" in told and len(versions) == 4:
        theirs, ours = (f"Ray {ray} and Python {python}" for ray, python in (versions[:2], versions[2:]))
        return f"the cluster has {theirs}, this process has {ours}; install the same on all nodes"
    if "Unauthenticated" in told:
        return "the cluster asks for its token; set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN where this machine has none"
    if "Failed to connect to socket" in told:
        return "this machine is no node of the cluster; run odt-sim on one of its nodes, or by ray job submit"
    [*_, reason] = re.findall(r"^\w+(?:Error|Exception): (.+)", told, re.MULTILINE) or ["Ray ended without a reason"]
    return f"cannot reach Ray ({reason.rstrip('.')}); start a cluster (ray start --head), or use local"
