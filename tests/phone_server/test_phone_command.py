"""The command `odt-sim phone`: it serves a file or a run until Ctrl-C, or reports in one line why it cannot."""

import json
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from shutil import which
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from odt_sim import TrainableModel
from odt_sim.cli.main import main
from odt_sim.fleet.profile import DeviceProfile, Timing


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[tuple[str, list[str], subprocess.Popen[str]]]:
    """Yield the address, the lines before it, and the process."""
    command = [
        str(Path(sys.executable).with_name("odt-sim")),
        "phone",
        *arguments,
        "--host",
        "127.0.0.1",
        "--port",
        "0",
    ]
    child = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout
    lines: list[str] = []
    try:
        for line in child.stdout:
            lines.append(line)
            if "Ctrl-C" in line:
                break
        address = re.search(r"http\S+", "".join(lines))
        assert address, child.communicate()[1]
        yield address[0], lines, child
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate()


def loaded(address: str) -> Any:
    with urlopen(address, timeout=10) as answer:
        return json.load(answer)


@pytest.mark.slow
def test_file_is_served_and_ctrl_c_ends_cleanly(softmax: TrainableModel, tmp_path: Path) -> None:
    (tmp_path / "softmax.tflite").write_bytes(softmax.content)
    (tmp_path / "classes.json").write_text(json.dumps(list("abcdefghij")))
    with serving(tmp_path, "softmax.tflite") as (address, lines, child):
        described = loaded(f"{address}model.json")
        assert lines[0] == "softmax: recorded 14 calls with random examples\n"
        assert (described["fingerprint"], described["labels"]) == (softmax.fingerprint, list("abcdefghij"))
        assert set(described["python"]) == {"train", "infer"}
        with urlopen(f"{address}model.tflite", timeout=10) as answer:
            assert answer.read() == softmax.content
        timings = {name: Timing(**timing) for name, timing in described["python"].items()}
        half = {name: replace(timing, median=2 * timing.median, upper_quartile=1e3) for name, timing in timings.items()}
        profile = DeviceProfile("phone", "softmax", softmax.fingerprint, half, 1.0)
        body = json.dumps({"format_version": 1, **asdict(profile)}).encode()
        with urlopen(Request(f"{address}profile", body), timeout=10) as answer:
            assert json.load(answer) == {"file": "profiles/phone.json"}
        assert DeviceProfile.read(tmp_path / "profiles" / "phone.json").relative_speed == pytest.approx(0.5)
        with pytest.raises(HTTPError, match="413"):
            urlopen(Request(f"{address}profile", bytes(70_000)), timeout=10)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=20)
    assert (child.returncode, out) == (0, "stopped\n")
    assert "Traceback" not in err


@pytest.mark.slow
def test_run_is_served_with_its_data(tmp_path: Path, softmax: TrainableModel, capsys: Any) -> None:
    run = [
        f"hydra.run.dir={tmp_path}/runs/first",
        "model=softmax",
        "backend=serial",
        "fleet.devices=2",
        "fleet.unseen=0",
        "run.rounds=1",
    ]
    assert main(["run", *run]) == 0
    with serving(tmp_path, "runs") as (address, lines, _):  # a folder that holds one run
        described = loaded(f"{address}model.json")
        assert lines[0] == "softmax: recorded 14 calls with data digits\n"
        assert described["fingerprint"] != softmax.fingerprint  # trained
        assert described["shades"] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no.tflite"], "no.tflite: cannot read the model"),
        (["folder"], "folder: no run found there; give a run's folder, or one that contains runs"),
        (["killed"], "killed: contains no model.tflite; give the folder of a complete run, or a .tflite file"),
        (["sweep"], "sweep: expected one run, found 2; choose one of sweep/0, sweep/1"),
        (
            ["personal"],
            "personal: contains no model.tflite; its strategy has no global model; deploy a device's model and give "
            "that file: "
            "odt-sim deploy personal --device ID (--new for new users), or odt_sim.deploy.write.deploy for a run "
            "started from Python",
        ),
        (["folder", "data=digits"], "data=digits: a run uses its own data;"),
        (["softmax.tflite", "data=nothing"], "data=nothing: no such option"),
        (["softmax.tflite", "--certificate", "a.pem"], "--certificate: needs --key"),
        (
            ["softmax.tflite", "--certificate", "a.pem", "--key", "a.pem"],
            "--certificate a.pem, --key a.pem: cannot use",
        ),
        (
            ["softmax.tflite", "--assets", "folder", "--port", "0"],
            "assets folder: does not contain LiteRT.js; in this folder, run: npm",
        ),
        (
            ["softmax.tflite", "--assets", "softmax.tflite", "--port", "0"],
            "assets softmax.tflite: expected a folder, found a file; give the folder that contains node_modules",
        ),
        (["softmax.tflite", "--port", "70000"], "--host 0.0.0.0 --port 70000: cannot listen there"),
    ],
)
def test_unusable_arguments_are_refused_in_one_line(
    arguments: list[str],
    message: str,
    softmax: TrainableModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "softmax.tflite").write_bytes(softmax.content)
    (tmp_path / "folder").mkdir()
    (tmp_path / "personal").mkdir()
    (tmp_path / "personal" / "summary.json").write_text("{}")
    for name in ("killed", "sweep/0", "sweep/1"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "rounds.jsonl").touch()
    assert main(["phone", *arguments]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "any_rows",
            "takes any number of rows, which LiteRT.js cannot run; fix the number: export it with model.batch_size=16, or "
            "for a file with Flex ops run odt-sim deflex IN OUT --batch-size 16",
        ),
    ],
)
def test_file_that_browsers_cannot_train_is_refused_in_the_terminal(
    name: str, message: str, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "app.tflite"
    path.write_bytes(request.getfixturevalue(name).content)
    assert main(["phone", str(path)]) == 1
    assert capsys.readouterr().err.startswith(f"error: {path}: {message}")


@pytest.mark.parametrize("names", ['{"cat": 0}', "[0, 1]", "cat, dog"])
def test_names_that_are_no_list_are_refused(
    names: str, softmax: TrainableModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "softmax.tflite").write_bytes(softmax.content)
    (tmp_path / "classes.json").write_text(names)
    assert main(["phone", str(tmp_path / "softmax.tflite")]) == 1
    error = (
        f"error: {tmp_path / 'classes.json'}: expected a list of the names of the classes; correct it, or remove it\n"
    )
    assert capsys.readouterr().err == error


def test_busy_port_is_one_line(softmax: TrainableModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "softmax.tflite").write_bytes(softmax.content)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = str(busy.getsockname()[1])
        assert main(["phone", str(tmp_path / "softmax.tflite"), "--host", "127.0.0.1", "--port", port]) == 1
    assert capsys.readouterr().err.startswith(f"error: --port {port}: another program listens there;")


@pytest.mark.slow
@pytest.mark.skipif(which("openssl") is None, reason="needs the program openssl")
def test_certificate_serves_https(softmax: TrainableModel, tmp_path: Path) -> None:
    (tmp_path / "softmax.tflite").write_bytes(softmax.content)
    new = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=phone"]
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "certificate.pem"]
    subprocess.run(["openssl", *new, *files], cwd=tmp_path, check=True, capture_output=True)
    trusted = ssl.create_default_context(cafile=tmp_path / "certificate.pem")
    with serving(tmp_path, "softmax.tflite", "--certificate", "certificate.pem", "--key", "key.pem") as (address, *_):
        assert address.startswith("https://127.0.0.1:")
        with urlopen(f"{address}settings.json", timeout=10, context=trusted) as answer:
            assert json.load(answer) == {"assets": None}
