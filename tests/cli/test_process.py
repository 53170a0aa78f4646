"""The command as a process of its own: in a terminal, and interrupted."""

import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time

import psutil
import pytest
from commands import COMMAND, FEW, INTERRUPTED_AT, lines, runs

from odt_sim.cli.main import main


def test_a_terminal_without_colours(folder):
    """A real terminal of 80 columns: a live display, and no colour where NO_COLOR is set."""
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
    assert "\x1b[?25l" in text  # live: the cursor is hidden, and shown again
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
    assert not re.search(r"\x1b\[[\d;]*[34]\d[\d;]*m", text)


def heed_interrupts():
    """In the child: takes signals as a terminal's programs do, even where these tests run in the background of a shell."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def wait_for(condition, child, seconds=120):
    def met():
        assert child.poll() is None, child.communicate()
        return condition()

    wait_until(met, seconds)


def wait_until(condition, seconds):
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds
        time.sleep(0.05)


def runs_still(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE  # which has ended, and waits for its parent to ask
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    ("backend", "number", "code"),
    [
        ("serial", signal.SIGINT, 130),
        ("serial", signal.SIGHUP, 129),
        ("ray", signal.SIGTERM, 143),
        ("ray", signal.SIGINT, 130),
    ],
)
def test_a_run_interrupted_while_devices_hang_ends_soon_says_how_to_go_on_and_can(folder, backend, number, code):
    given = ["strategy._target_=mine.Slow", *FEW, "run.rounds=400", f"backend={backend}"]
    child = subprocess.Popen(
        [*COMMAND, "run", *given], stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=heed_interrupts
    )
    wait_for(lambda: runs(folder) and len(lines(runs(folder)[0] / "rounds.jsonl")) >= 2, child)
    (folder / "hang").touch()
    time.sleep(0.5)
    others = psutil.Process(child.pid).children(recursive=True)
    assert len(others) > 4 or backend == "serial"
    started = time.monotonic()
    os.killpg(child.pid, number)  # a terminal sends it to all processes of the group
    _, err = child.communicate(timeout=120)
    assert time.monotonic() - started < 30  # devices sleep for a minute
    wait_until(
        lambda: not any(runs_still(other) for other in others), 30
    )  # Ray's, of which some would stay for a minute
    assert child.returncode == code
    (folder / "hang").unlink()
    [run] = runs(folder)
    hint = f"interrupted; go on with: odt-sim run run.resume={run.relative_to(folder)}"
    assert err.splitlines()[-1] == hint
    assert "Traceback" not in err
    committed = len(lines(run / "rounds.jsonl"))
    arguments = [*shlex.split(hint.partition("odt-sim ")[2]), "backend=serial", f"run.rounds={committed + 1}"]
    assert main(arguments) == 0
    assert [row["round"] for row in lines(run / "rounds.jsonl")] == list(range(1, committed + 2))


@pytest.mark.parametrize(
    ("number", "code", "module"),
    [(signal.SIGINT, 130, name) for name in ("odt_sim", "numpy", "odt_sim.cli.main", "hydra", "odt_sim.cli.build")]
    + [(signal.SIGTERM, 143, name) for name in ("odt_sim", "hydra")]
    + [(signal.SIGHUP, 129, "odt_sim")],
)
def test_an_interrupt_while_it_imports_ends_it_in_one_line(folder, number, code, module):
    command = [sys.executable, "-c", INTERRUPTED_AT, str(int(number)), module, "run", *FEW]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, preexec_fn=heed_interrupts)
    assert (found.returncode, found.stdout) == (code, "there\n")
    assert found.stderr.strip() in ("interrupted", "interrupted; no round was committed yet")


def test_an_interrupt_during_the_export_does_not_wait_for_it(folder, tmp_path):
    environment = {**os.environ, "ODT_SIM_CACHE": str(tmp_path / "empty")}
    command = [*COMMAND, "run", *FEW]
    child = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True, preexec_fn=heed_interrupts
    )
    wait_for(lambda: list(tmp_path.glob("empty/models/*.lock")), child)
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=120)
    assert not list(tmp_path.glob("empty/models/*.tflite"))
    assert child.returncode == 130
    assert err.splitlines()[-1] == "interrupted; no round was committed yet"
    assert "Traceback" not in err
