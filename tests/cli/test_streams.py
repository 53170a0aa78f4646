"""Standard streams that are closed, full, without a reader, or in an encoding that lacks letters."""

import os
import signal
import subprocess
import sys

import pytest
from commands import COMMAND, FEW, INTERRUPTED_AT

FULL = "error: standard output: cannot write it (No space left on device); make room there or choose another place\n"

CLOSED = """
import os, sys
from odt_sim.cli.main import command
sys.argv[1:] = ["--version"]
code = command()
nowhere = os.stat(os.devnull)
os._exit(code or sum(not os.path.samestat(os.fstat(number), nowhere) for number in range(3)))
"""


@pytest.fixture
def unread():
    """The writing end of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


@pytest.fixture(scope="module")
def file(tmp_path_factory, softmax):
    path = tmp_path_factory.mktemp("日本") / "模.tflite"
    path.write_bytes(softmax.content)
    return path


@pytest.fixture(params=["buffered", "unbuffered"])
def environment(request):
    return {**os.environ, "PYTHONUNBUFFERED": "1" if request.param == "unbuffered" else ""}


def ran(*arguments, **options):
    """Returns the exit code and what is on standard error."""
    done = subprocess.run([*COMMAND, *map(str, arguments)], stderr=subprocess.PIPE, text=True, timeout=120, **options)
    return done.returncode, done.stderr


def test_output_that_nobody_reads_is_no_traceback(unread, file, environment):
    assert ran("--version", stdout=unread, env=environment) == (1, "")
    assert ran("inspect", file, stdout=unread, env=environment) == (1, "")


def test_output_without_room_is_one_line(file, environment):
    with open("/dev/full", "wb") as full:
        assert ran("--version", stdout=full, env=environment) == (1, FULL)
        assert ran("inspect", file, stdout=full, env=environment) == (1, FULL)


def test_letters_that_the_encoding_lacks_are_escaped(file):
    environment = {**os.environ, "PYTHONIOENCODING": "latin1", "COLUMNS": "400"}
    done = subprocess.run(
        [*COMMAND, "inspect", str(file)], capture_output=True, text=True, env=environment, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert r"\u6a21.tflite" in done.stdout


def test_streams_that_are_closed_lead_nowhere():
    """Else the next file or pipe would be the standard error, and Ray not start."""
    child = subprocess.run([sys.executable, "-c", CLOSED], preexec_fn=lambda: os.closerange(0, 3), timeout=120)
    assert child.returncode == 0


@pytest.mark.parametrize("module", ["odt_sim", "hydra"])  # while the command imports, and while it runs
def test_an_interrupt_without_a_reader_has_its_exit_code(unread, tmp_path, module):
    command = [sys.executable, "-c", INTERRUPTED_AT, str(int(signal.SIGTERM)), module, "run", *FEW]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=unread, cwd=tmp_path, timeout=120)
    assert (done.returncode, done.stdout) == (143, b"there\n")
