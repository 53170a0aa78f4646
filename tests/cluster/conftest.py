"""The head of a Ray cluster with its dashboard, and an S3 server, each in a separate process."""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SECONDS = 120  # seconds for a process to start, to answer or to end on a busy machine


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slow)


@dataclass(frozen=True)
class S3:
    """A running S3 server.

    Attributes:
        environment: The environment variables with which s3fs connects to it.
        files: Its buckets as an fsspec file system.
    """

    environment: dict[str, str]
    files: Any


class Head:
    """A running cluster of one node with two CPUs.

    Attributes:
        address: `host:port`.
        dashboard: The URL of its dashboard.
        environment: The environment variables, such as its token, that a process needs to join it or to submit jobs.
    """

    def __init__(self, process: "subprocess.Popen[str]", environment: Mapping[str, str]) -> None:
        self._process, self.environment = process, environment
        self.address, self.dashboard = json.loads(line_of(process))

    def add_node(self) -> str:
        """Add a node with one CPU, and return its id."""
        print("node", file=self._process.stdin, flush=True)
        return line_of(self._process)


@pytest.fixture
def s3() -> Iterator[S3]:
    pytest.importorskip("moto", reason="moto[server] is not installed; run make test-cluster")
    s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed; run make test-cluster")
    with process("s3_server.py") as server:
        url = line_of(server)
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        environment = {"AWS_ENDPOINT_URL": url, "AWS_DEFAULT_REGION": "us-east-1", **dict.fromkeys(names, "testing")}
        files = s3fs.S3FileSystem(
            key="testing", secret="testing", endpoint_url=url, use_listings_cache=False, skip_instance_cache=True
        )
        files.mkdir("bucket")
        yield S3(environment, files)


@pytest.fixture(scope="module")  # an idle cluster uses a sixth of a core
def head() -> Iterator[Head]:
    pytest.importorskip("aiohttp_cors", reason="ray[default] is not installed; run make test-cluster")
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
    with process("cluster_process.py", **token) as cluster:
        yield Head(cluster, token)


@contextmanager
def process(script: str, **variables: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a script of this folder during the block; at the end, close its input."""
    pipe = subprocess.PIPE
    environment = {**os.environ, "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", **variables}
    command = [sys.executable, HERE / script]
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as running:
        try:
            yield running
            running.communicate(timeout=SECONDS)
        finally:
            running.kill()


def line_of(process: "subprocess.Popen[str]") -> str:
    line = process.stdout.readline().strip()
    assert line, f"{process.args}: ended"
    return line
