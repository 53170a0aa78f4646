"""Attacks of clients without the token on the port of a run of phones, and of phones that joined."""

import re
import resource
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from odt_sim import TrainableModel
from odt_sim.errors import DataError
from odt_sim.phone import fleet_socket, server
from odt_sim.phone.frames import Message, decode, encode
from odt_sim.phone.phones import short_line
from odt_sim.phone.server import listen
from tests.phone_fleet.raw_phones import RawPhone, Running, opened, wait

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """A usual limit, under which 1,100 connections exceed the descriptors of the process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def running(softmax: TrainableModel, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Running]:
    """A run of one phone, which completes after the attack, without a logged error."""
    run = Running(softmax, tmp_path / "run", devices=1, rounds=1)
    wait(lambda: run.address)
    yield run
    RawPhone(run.address)
    run.finish()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def connected(running: Running) -> socket.socket:
    parts = urlsplit(running.address)
    return socket.create_connection((parts.hostname, parts.port), 10)


def is_closed(client: socket.socket, seconds: float = 10.0) -> bool:
    client.settimeout(seconds)
    try:
        while client.recv(1000):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


@pytest.mark.usefixtures("few_descriptors")
def test_idle_connections_do_not_use_up_the_descriptors(running: Running) -> None:
    """More connections than the run may hold, from another address: a phone still connects."""
    host, port = urlsplit(running.address).hostname, urlsplit(running.address).port
    connecting = f"socket.create_connection(({host!r}, {port}), 9, ('127.0.0.2', 0))"
    attack = f"import socket; held = [{connecting} for _ in range(700)]; print(1); input()"
    with subprocess.Popen(
        [sys.executable, "-c", attack], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout
        assert client.stdout.readline()
        with closing(opened(running.address)) as phone:
            phone.send(encode(Message({"do": "join", "phone": "b" * 32})))
            assert decode(bytes(phone.recv(30))).header["do"] == "welcome"
        client.communicate("\n", 30)


def test_connections_of_one_address_leave_places_for_others() -> None:
    with listen("127.0.0.1", 0) as listening, ExitStack() as clients:
        assert isinstance(listening, server.ListeningSocket)
        listening.most = 8
        accepted = []
        for host in ["127.0.0.1"] * 3 + ["127.0.0.2"]:
            clients.enter_context(socket.create_connection(listening.getsockname(), 10, (host, 0)))
            try:
                accepted.append(clients.enter_context(listening.accept()[0]))
            except ConnectionAbortedError:
                accepted.append(None)
        assert [connection is not None for connection in accepted] == [True, True, False, True]


def test_peer_outside_the_private_network_is_closed_at_accept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "is_local", lambda address: address != "127.0.0.3")
    with listen("127.0.0.1", 0) as listening, closing(socket.socket()) as client:
        client.bind(("127.0.0.3", 0))
        client.connect(listening.getsockname())
        with pytest.raises(ConnectionAbortedError):
            listening.accept()
        assert is_closed(client)


@pytest.mark.parametrize("sent", [b"", REQUEST, b"\x16\x03\x01"], ids=["nothing", "half a request", "TLS"])
def test_request_that_does_not_arrive_ends_its_connection(
    sent: bytes, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.3)
    with closing(connected(running)) as client:
        client.sendall(sent)
        assert is_closed(client)


def test_refused_connection_ends(running: Running) -> None:
    with closing(connected(running)) as client:
        client.sendall(REQUEST + b"\r\n")
        assert is_closed(client)


def test_page_that_never_gets_ready_leaves_its_place(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_socket, "READY_SECONDS", 0.3)
    with closing(opened(running.address)) as client:
        client.send(encode(Message({"do": "join", "phone": "c" * 32})))
        assert decode(bytes(client.recv(30))).header["do"] == "welcome"
        assert re.match("This phone was not ready within", decode(bytes(client.recv(30))).header["sentence"])


@pytest.mark.parametrize("secret", ["\ud800" * 32, "G" * 32, "a" * 33], ids=ascii)
def test_secret_is_hexadecimal(secret: str, running: Running) -> None:
    with closing(opened(running.address)) as client:
        client.send(encode(Message({"do": "join", "phone": secret})))
        assert decode(bytes(client.recv(30))).header["failed"]


def test_tensor_of_no_elements_with_long_axes_is_an_invalid_message() -> None:
    frame = encode(Message({"tensors_": 0}))
    declared = b'{"tensors": [{"name": "x", "dtype": "float32", "shape": [0, 2147483647, 2147483647, 2147483647]}]}'
    padded = declared.ljust(-(-len(declared) // 8) * 8)
    with pytest.raises(DataError, match="expected at most"):
        decode(frame[:4] + len(padded).to_bytes(4, "little") + padded)


def test_text_of_a_phone_cannot_control_the_terminal() -> None:
    assert short_line("\x1b[2J\x9b1mgone\x07") == "\ufffd[2J\ufffd1mgone\ufffd"


def test_token_is_readable_by_its_user_only(running: Running) -> None:
    path = running.directory / "checkpoint" / "phones.json"
    wait(path.exists)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
