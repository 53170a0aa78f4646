"""Errors of Ray as lines with advice."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_cluster_that_stops_answering_is_given_up():
    """A socket that accepts connections and stays silent, as after the check that Ray answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        joining = f"cluster.JOIN_SECONDS = 2; cluster._init({address!r}, {{}})"
        start = f"from odt_sim.simulation.executors.ray import cluster; {joining}"
        child = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, timeout=60)
    last = child.stderr.splitlines()[-1]
    assert f"backend.address={address}: no answer from Ray within 2 s; see whether it runs" in last


def test_home_that_takes_no_token_is_explained(tmp_path: Path):
    (tmp_path / ".ray").touch()  # where Ray would make a folder
    start = "from odt_sim.simulation.executors.ray import RayBackend; RayBackend().start()"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    child = subprocess.run(
        [sys.executable, "-c", start],
        env={**environment, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert f"{tmp_path}/.ray" in child.stderr.splitlines()[-1]
    assert "set HOME, for Ray's token, or RAY_TMPDIR to a writable folder" in child.stderr.splitlines()[-1]
