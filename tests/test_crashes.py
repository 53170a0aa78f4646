"""The report of a test whose worker crashed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import os, signal

def test_segfault():
    os.kill(os.getpid(), signal.SIGSEGV)

def test_killed():
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_crash_is_reported_with_its_traceback(tmp_path: Path) -> None:
    path = tmp_path / "test_crashing.py"
    path.write_text(TESTS)
    options = ["--numprocesses", "1", "-p", "crashes", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", *options, str(path)]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    failures = done.stdout.partition(" FAILURES ")[2]
    assert re.search(
        r"Fatal Python error: Segmentation fault.*test_crashing.py\", line 5 in test_segfault", failures, re.S
    )
    assert re.search(r"no traceback; \d+ MB of memory are available", failures)
    assert "2 failed" in failures
