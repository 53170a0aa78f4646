"""Completion of the command line, also in real shells."""

import fcntl
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

import pytest

from odt_sim.cli.commands.completion import SCRIPTS, candidates, completion
from odt_sim.cli.main import main

START = {
    "bash": (["bash", "--norc", "-i"], 'eval "$(odt-sim completion bash)"'),
    "zsh": (["zsh", "-f", "-i"], 'autoload -U compinit; compinit -u; eval "$(odt-sim completion zsh)"'),
    "fish": (["fish", "--no-config", "-i"], "odt-sim completion fish | source"),
}
PROMPTS = {"bash": b"prompt ", "zsh": b"prompt ", "fish": b"~"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ru", ["run"]),
        ("run strategy=fedb", ["strategy=fedbabu", "strategy=fedbn"]),
        (
            "run -m strategy=local,fedp",
            [f"strategy=local,{name}" for name in ("fedpac", "fedper", "fedphp", "fedproto", "fedprox")],
        ),
        ("run strategy=ditto strategy.reg", ["strategy.regularization="]),
        ("run no.such=1 train.ep", ["train.epochs="]),
        ("run +exp", ["+experiment="]),
        ("run +experiment=reproduce/s", ["+experiment=reproduce/school"]),
        ("run train.epochs=", ["train.epochs=1"]),
        ("run run.until=", ["run.until=null", "run.until=plateau", "run.until=target"]),
        ("run backend.devices_per_actor=", ["backend.devices_per_actor=1", "backend.devices_per_actor=auto"]),
        ("run model.embed=t", ["model.embed=true"]),
        ("export model=digits_m", ["model=digits_mlp"]),
        ("tune strategy=fedavg_", ["strategy=fedavg_finetune"]),
        ("tune strategy=fedavg,dit", ["strategy=fedavg,ditto"]),
        ("tune bud", ["budget="]),
        ("tune budget=", ["budget=20"]),
        ("tune budget=3 jobs=2 strategy=ditto strategy.reg", ["strategy.regularization="]),
        ("tune tuning", ["tuning_seed="]),
        ("tune task=d", []),
        ("tune --he", ["--help"]),
        ("benchmark task=digits,s", [f"task=digits,{name}" for name in ("school", "shakespeare", "synthetic")]),
        ("benchmark strategy=fedavg_", ["strategy=fedavg_finetune"]),
        ("benchmark uci", ["uci_har."]),
        ("benchmark budget=3 uci_har.data.pa", ["uci_har.data.path="]),
        ("benchmark output=", ["output=benchmark"]),
        ("report --b", ["--best"]),
        ("completion z", ["zsh"]),
        ("join out.tflite bott", ["bottleneck="]),
        ("inspect model", []),
        ("new st", ["strategy"]),
        ("watch --p", ["--port"]),
        ("run --co", ["--config-dir"]),
        ("doctor --e", ["--environment"]),
        ("new strategy ha", []),
    ],
)
def test_candidates(line: str, expected: list[str]) -> None:
    assert candidates(line.split()) == expected


def test_empty_word_offers_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert completion(["--query", "odt-sim "]) == 0
    assert {"run", "report", "export", "inspect", "completion"} < set(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", ["report", "export", "deflex", "inspect", "deploy", "phone", "watch", "doctor"])
def test_all_options_of_a_command_are_offered(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([name, "--help"])
    declared = re.findall(r"^  (?:-\w(?: \w+)?, )?(--[\w-]+)", capsys.readouterr().out, re.MULTILINE)
    offered = candidates([name, "-"])
    assert [each for each in declared if each not in offered and not (each == "--output" and "-o" in offered)] == []


@pytest.mark.parametrize("shell", SCRIPTS)
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("run strategy=fedbab", b"strategy=fedbabu"),
        ("tune strategy=fedavg,fedavg_f", b"strategy=fedavg,fedavg_finetune"),
        ("run data.path=tab", b"data.path=table.csv"),
    ],
)
def test_shell_completes_by_the_printed_script(shell: str, typed: str, completed: bytes, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "table.csv").touch()
    command, load = START[shell]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(tmp_path), "TERM": "dumb", "PS1": "prompt ", "COLUMNS": "200"}
    own, terminal = pty.openpty()
    child = subprocess.Popen(
        command,
        **{"stdin": terminal, "stdout": terminal, "stderr": terminal, "env": environment, "cwd": tmp_path},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(terminal)
    try:
        _read_until(own, PROMPTS[shell])
        os.write(own, f"{load}; echo rea''dy\r".encode())
        _read_until(own, b"ready")
        os.write(own, f"echo | odt-sim {typed}\t".encode())
        _read_until(own, completed[len(typed.split()[-1]) :])
        os.write(own, b"\x01: '\x05'")  # moving to both ends draws the whole line again
        _read_until(own, completed)
    finally:
        child.kill()
        child.wait()
        os.close(own)


def _read_until(file: int, expected: bytes) -> None:
    shown, started = b"", time.monotonic()
    while expected not in shown:
        assert time.monotonic() - started < 60, shown.decode()
        if select.select([file], [], [], 0.2)[0]:
            with suppress(OSError):
                shown += os.read(file, 1 << 16)
