"""The command as a separate process: in a terminal, interrupted, and with a closed pipe."""

import os
import pty
import re
import select
import shlex
import signal
import subprocess
import time

import psutil
import pytest
from command_process import COMMAND
from commands import FEW, lines, runs
from written_runs import write_run

from odt_sim.cli.commands.run import launch


@pytest.mark.slow
def test_terminal_shows_a_live_line_without_colours(folder):
    own, terminal = pty.openpty()
    environment = {**os.environ, "NO_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "80"}
    child = subprocess.Popen(
        [*COMMAND, "run", "strategy=local", *FEW], stdout=terminal, stderr=terminal, stdin=terminal, env=environment
    )
    os.close(terminal)
    shown = b""
    while child.poll() is None or select.select([own], [], [], 0.1)[0]:
        if select.select([own], [], [], 0.1)[0]:
            try:
                shown += os.read(own, 1 << 16)
            except OSError:  # the other side was closed
                break
    os.close(own)
    assert child.wait(timeout=120) == 0
    text = shown.decode()
    assert "setting up" in text
    assert "XNNPACK" not in text  # nothing else writes into the live line
    assert re.search(r"2/2 0:00:\d\d accuracy", text)
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is hidden, and shown again
    assert not re.search(r"\x1b\[[\d;]*[34]\d[\d;]*m", text)


@pytest.mark.slow
def test_resumed_run_hides_the_lines_of_litert(folder):
    for given in ([*FEW, "run.rounds=1", "hydra.run.dir=out"], ["run.resume=out", "run.rounds=2"]):
        done = subprocess.run([*COMMAND, "run", *given], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert "XNNPACK" not in done.stderr


def wait_until(condition, seconds=120):
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds
        time.sleep(0.05)


def is_alive(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    ("backend", "number", "code"),
    [
        ("serial", signal.SIGINT, 130),
        ("processes", signal.SIGINT, 130),
        pytest.param("ray", signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param("ray", signal.SIGINT, 130, marks=pytest.mark.slow),
    ],
)
def test_interrupted_run_ends_soon_and_can_be_resumed(folder, backend, number, code):
    given = ["strategy._target_=mine.Slow", *FEW, "run.rounds=400", f"backend={backend}"]
    child = subprocess.Popen(
        [*COMMAND, "run", *given],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Programs in the background of a shell ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )

    def trained():
        assert child.poll() is None, child.communicate()
        return runs(folder) and len(lines(runs(folder)[0] / "rounds.jsonl")) >= 2

    wait_until(trained)
    (folder / "hang").touch()
    time.sleep(0.5)
    others = psutil.Process(child.pid).children(recursive=True)
    assert len(others) > 4 or backend != "ray"
    started = time.monotonic()
    if number == signal.SIGINT:
        os.killpg(child.pid, number)  # as a terminal does
    else:
        child.send_signal(number)
    _, err = child.communicate(timeout=120)
    assert time.monotonic() - started < 30  # devices sleep for a minute
    wait_until(lambda: not any(map(is_alive, others)), 30)
    assert child.returncode == code
    (folder / "hang").unlink()
    [run] = runs(folder)
    hint = f"interrupted; resume with: odt-sim run run.resume={run.relative_to(folder)}"
    assert err.splitlines()[-1] == hint
    assert "Traceback" not in err
    committed = len(lines(run / "rounds.jsonl"))
    arguments = [*shlex.split(hint.partition("odt-sim run ")[2]), "backend=serial", f"run.rounds={committed + 1}"]
    assert launch(arguments).failed == 0
    assert [row["round"] for row in lines(run / "rounds.jsonl")] == list(range(1, committed + 2))


def test_closed_pipe_ends_the_command_quietly(folder, softmax):
    (folder / "model.tflite").write_bytes(softmax.content)
    reading, writing = os.pipe()
    os.close(reading)
    child = subprocess.run([*COMMAND, "inspect", "model.tflite"], stdout=writing, stderr=subprocess.PIPE, timeout=60)
    os.close(writing)
    assert (child.returncode, child.stderr) == (1, b"")


@pytest.mark.slow
def test_report_is_printed_where_the_encoding_lacks_characters(tmp_path):
    write_run(tmp_path / "sweep" / "0", "local")
    write_run(tmp_path / "sweep" / "1", "fedavg")
    command = [*COMMAND, "report", "sweep", "-o", "report.html"]
    variables = {**os.environ, "PYTHONIOENCODING": "ascii"}
    printed = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, check=True, timeout=120).stdout
    assert b"fedavg" in printed
    printed.decode("ascii")
