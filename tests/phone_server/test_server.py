"""The web server of `odt_sim.phone`, on loopback: accepted requests and their responses."""

import gc
import socket
import ssl
import subprocess
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from shutil import which
from urllib.parse import urlsplit

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from odt_sim.errors import ConfigurationError
from odt_sim.phone import server
from odt_sim.phone.app import CDN, body_of, phone_app
from odt_sim.phone.guard import is_local

TOKEN = "t0ken"


async def upload(request: Request) -> Response:
    return PlainTextResponse(str(len(await body_of(request, 1000))))


async def echo(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text(await socket.receive_text())


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    listening = server.listen("127.0.0.1", 0)
    routes = [Route("/upload", upload, methods=["POST"]), WebSocketRoute("/echo", echo)]
    app = phone_app(TOKEN, "127.0.0.1", routes=routes)
    url = server.address_of(listening, TOKEN)
    with server.Server(app, listening):
        yield url


def answer(
    address: str, path: str = f"/{TOKEN}/", method: str = "GET", body: bytes | None = None, **headers: str
) -> tuple[int, str]:
    connection = HTTPConnection(urlsplit(address).netloc, timeout=10)
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def test_page_is_served_below_the_token(address: str) -> None:
    code, text = answer(address)
    assert code == 200
    assert text == (Path(server.__file__).with_name("page") / "index.html").read_text()
    assert answer(address, f"/{TOKEN}/settings.json") == (200, '{"assets":null}')


@pytest.mark.parametrize("path", ["/", "/wrong/", "/wrong/settings.json", f"/{TOKEN}x/", f"//{TOKEN}/", "/%F0/"])
def test_wrong_token_is_refused_in_one_sentence(address: str, path: str) -> None:
    code, text = answer(address, path)
    assert code == 403
    assert text.startswith("The token in this address is wrong;")


def test_refusal_is_a_page_in_a_browser(address: str) -> None:
    code, text = answer(address, "/wrong/", Accept="text/html,*/*;q=0.8")
    assert code == 403
    assert "width=device-width" in text
    assert "The token in this address is wrong;" in text


@pytest.mark.parametrize("path", [f"/{TOKEN}/../server.py", f"/{TOKEN}/%2e%2e/server.py", f"/{TOKEN}/no.js"])
def test_only_files_of_the_page_are_served(address: str, path: str) -> None:
    assert answer(address, path)[0] == 404


@pytest.mark.parametrize(
    ("headers", "sentence"),
    [
        ({"Host": "evil.example"}, "This server does not use that name;"),
        ({"Host": "evil.example:80"}, "This server does not use that name;"),
        ({"Host": "[::1"}, "This server does not use that name;"),
        ({"Host": "8.8.8.8"}, "This server does not use that name;"),
        ({"Host": "localhost:1", "Origin": "http://localhost:2"}, "This request comes from a page of another server;"),
        ({"Host": "localhost:1", "Origin": "null"}, "This request comes from a page of another server;"),
        ({"Host": "localhost:1", "Origin": "http://localhost:1"}, ""),
        ({"Host": "192.168.1.5:8765"}, ""),
        ({"Host": f"{socket.gethostname().removesuffix('.local')}.local:8765"}, ""),
        ({"Host": "rebound.local:8765"}, "This server does not use that name;"),
    ],
)
def test_foreign_names_and_pages_are_refused(address: str, headers: dict[str, str], sentence: str) -> None:
    code, text = answer(address, **headers)
    assert code == (403 if sentence else 200)
    assert text.startswith(sentence)


@pytest.mark.parametrize(
    ("given", "local"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("192.168.1.5", True),
        ("10.0.0.1", True),
        ("fe80::1%wlan0", True),
        ("::ffff:192.168.1.5", True),
        ("::ffff:8.8.8.8", False),
        ("100.64.0.1", True),
        ("::ffff:100.127.255.254", True),
        ("100.63.255.255", False),
        ("100.128.0.0", False),
        ("8.8.8.8", False),
        ("phone", False),
    ],
)
def test_local_addresses(given: str, local: bool) -> None:
    assert is_local(given) is local


def test_page_may_load_from_its_server_and_the_cdn_only(address: str) -> None:
    connection = HTTPConnection(urlsplit(address).netloc, timeout=10)
    connection.request("GET", f"/{TOKEN}/")
    headers = connection.getresponse().headers
    connection.close()
    assert headers["referrer-policy"] == "no-referrer"
    assert "default-src 'self'" in headers["content-security-policy"]
    assert f"connect-src 'self' {' '.join(CDN)};" in headers["content-security-policy"]


def test_large_upload_is_refused_and_the_server_goes_on(address: str) -> None:
    code, text = answer(address, f"/{TOKEN}/upload", "POST", bytes(1001))
    assert (code, text) == (413, "The upload exceeds 1,000 bytes; nothing was stored.")
    assert answer(address, f"/{TOKEN}/upload", "POST", bytes(1000)) == (200, "1000")


def test_cut_upload_leaves_the_server_running(address: str) -> None:
    where = urlsplit(address)
    with socket.create_connection((where.hostname, where.port)) as cut:
        cut.sendall(
            f"POST /{TOKEN}/upload HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Length: 500\r\n\r\nhalf".encode()
        )
    assert answer(address, f"/{TOKEN}/upload", "POST", b"whole") == (200, "5")


def test_web_sockets_pass_the_same_guard(address: str) -> None:
    url = address.replace("http", "ws", 1)
    with connect(f"{url}echo", origin=address.partition(f"/{TOKEN}")[0]) as socket:  # type: ignore[arg-type]
        socket.send("hello")
        assert socket.recv() == "hello"
    for refused, origin in ((url.replace(TOKEN, "wrong"), None), (url, "http://evil.example")):
        with pytest.raises(InvalidStatus, match="403"), connect(f"{refused}echo", origin=origin):  # type: ignore[arg-type]
            pass


def test_busy_port_is_one_line() -> None:
    with server.listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"^--port {port}: another program listens there"):
            server.listen("127.0.0.1", port)


@pytest.mark.parametrize(("host", "port"), [("192.0.2.1", 0), ("no such host", 0), ("127.0.0.1", 70000)])
def test_impossible_address_is_one_line(host: str, port: int) -> None:
    with pytest.raises(ConfigurationError, match=f"^--host {host} --port {port}: cannot listen there"):
        server.listen(host, port)


def test_wildcard_host_is_shown_as_the_address_in_the_network() -> None:
    with server.listen("0.0.0.0", 0) as listening:
        address = server.address_of(listening, TOKEN)
    assert address == f"http://{server.lan_address()}:{listening_port(address)}/{TOKEN}/"
    assert len({len(line) for line in server.qr_code(address).splitlines()}) >= 1


def listening_port(address: str) -> int:
    return urlsplit(address).port or 0


def test_folder_without_litert_js_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="in this folder, run: npm install"):
        phone_app(TOKEN, "127.0.0.1", assets=tmp_path)


def test_unusable_certificate_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.pem").write_text("no certificate")
    for name in ("a.pem", "missing.pem"):
        with pytest.raises(ConfigurationError, match=r"^--certificate .*: cannot use them"):
            server.Tls(tmp_path / name, tmp_path / "a.pem").check()


@pytest.mark.slow
@pytest.mark.skipif(which("openssl") is None, reason="needs the program openssl")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # uvicorn leaves the connection open
def test_silent_client_over_https_leaves_no_line_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    new = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=phone"]
    files = ["-keyout", key, "-out", certificate]
    subprocess.run(["openssl", *new, *files], check=True, capture_output=True)
    monkeypatch.setattr(server, "SECONDS_TO_STOP", 1)
    listening = server.listen("127.0.0.1", 0)
    context = ssl._create_unverified_context()
    with server.Server(phone_app(TOKEN, "127.0.0.1"), listening, server.Tls(certificate, key)):
        silent = context.wrap_socket(socket.create_connection(listening.getsockname()))
        silent.sendall(f"GET /{TOKEN}/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        assert silent.recv(100).startswith(b"HTTP/1.1 200")
    silent.close()
    gc.collect()
    assert caplog.messages == []
