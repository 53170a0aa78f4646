"""The server of the live page, on loopback: page, stream and shutdown."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from socket import gethostname
from typing import Any
from urllib.parse import urlsplit

import pytest
from command_process import COMMAND
from written_runs import round_record, write_hydra, write_run

from odt_sim._support.system import PACKAGES, check_extra
from odt_sim.cli.main import main
from odt_sim.errors import ConfigurationError
from odt_sim.persistence.run_folder import RunFolder
from odt_sim.watch.server import watch_server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sweep with a complete job and one that has two rounds."""
    write_run(tmp_path / "0")
    write_hydra(tmp_path / "1", ["strategy=fedper", "seed=1"])
    for number in (1, 2):
        RunFolder(tmp_path / "1").append_rounds(round_record(number, strategy="fedper", accuracy=0.5))
    return tmp_path


@contextmanager
def requested(address: str, path: str, **headers: str) -> Iterator[HTTPResponse]:
    connection = HTTPConnection(urlsplit(address).netloc, timeout=60)
    try:
        connection.request("GET", path, headers=headers)
        yield connection.getresponse()
    finally:
        connection.close()


def message(response: HTTPResponse) -> dict[str, Any]:
    """Return the next message of a stream."""
    while line := response.readline():
        if line.startswith(b"data: "):
            found = json.loads(line[6:])
            assert isinstance(found, dict)
            return found
    raise EOFError


def follow(response: HTTPResponse) -> None:
    """Read a stream to its end, which raises an exception."""
    while True:
        message(response)


def test_page_and_its_files_are_served(folder: Path) -> None:
    server, address = watch_server(folder, "127.0.0.1", 0)
    with server:
        for path, content in (("/", folder.name), ("/watch.js", "follow("), ("/dom.js", "export function element")):
            with requested(address, path) as response:
                assert response.status == 200
                assert content in response.read().decode()


def test_stream_has_all_jobs_first_and_then_what_changes(folder: Path) -> None:
    server, address = watch_server(folder, "127.0.0.1", 0)
    with server, requested(address, "/events") as response:
        assert response.getheader("content-type", "").startswith("text/event-stream")
        first = message(response)
        assert [(job["id"], job["round"], job["state"]) for job in first["jobs"]] == [
            ("0", 10, "complete"),
            ("1", 2, "running"),
        ]
        RunFolder(folder / "1").append_rounds(round_record(3, strategy="fedper", accuracy=0.6))
        second = message(response)
        assert [(job["id"], job["round"], job["score"]) for job in second["jobs"]] == [("1", 3, "60.0")]
        assert second["order"] == ["0", "1"]


@pytest.mark.slow
def test_stream_says_that_it_lives(folder: Path) -> None:
    server, address = watch_server(folder, "127.0.0.1", 0)
    with server, requested(address, "/events") as response:
        assert len(message(response)["jobs"]) == 2
        assert message(response)["jobs"] == []


def test_stream_ends_with_the_server_which_starts_again_at_its_port(folder: Path) -> None:
    server, address = watch_server(folder, "127.0.0.1", 0)
    with server, requested(address, "/events") as response:
        message(response)
        server.__exit__()
        with pytest.raises((EOFError, OSError)):
            follow(response)
    again, same = watch_server(folder, "127.0.0.1", urlsplit(address).port or 0)
    assert same == address
    with again, requested(same, "/events") as response:
        assert message(response)["order"] == ["0", "1"]


def test_foreign_name_is_refused(folder: Path) -> None:
    server, address = watch_server(folder, "127.0.0.1", 0)
    with server, requested(address, "/events", Host="evil.example") as response:
        assert response.status == 403


@pytest.mark.parametrize("host", ["192.168.7.7:8766", "10.0.0.5", f"{gethostname().title()}.local:8766"])
def test_every_address_and_local_name_of_this_machine_is_accepted(folder: Path, host: str) -> None:
    server, address = watch_server(folder, "127.0.0.1", 0)
    with server, requested(address, "/", Host=host) as response:
        assert response.status == 200


@pytest.mark.slow
def test_command_serves_until_it_is_interrupted(folder: Path) -> None:
    child = subprocess.Popen(
        [*COMMAND, "watch", str(folder), "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        line = child.stdout.readline()
        address = line.rpartition(": ")[2].strip()
        with requested(address, "/events") as response:
            assert message(response)["order"] == ["0", "1"]
            os.kill(child.pid, signal.SIGINT)
            out, errors = child.communicate(timeout=60)
        assert (child.returncode, out.splitlines()[-1], errors) == (0, "stopped", "")
    finally:
        child.kill()
        child.wait()


def test_wrong_usage_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(tmp_path / "missing")]) == 1
    assert "missing: does not exist; give a run's folder" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["watch", str(tmp_path), "--port", str(taken.getsockname()[1])]) == 1
    assert "another program listens there" in capsys.readouterr().err


def test_missing_package_comes_with_its_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACKAGES, "watch", ("starlette", "no_such_package"))
    with pytest.raises(
        ConfigurationError, match=r"^watch: no_such_package is missing; run: pip install 'odt_sim\[watch\]'$"
    ):
        check_extra("watch")
