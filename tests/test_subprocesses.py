"""Python subprocesses import this odt_sim, and may end at once, or with their parent."""

import subprocess
import sys

from odt_sim._support.system import environment

ENDS = """
import atexit
from odt_sim._support.system import end
atexit.register(print, "freed")
print("answer")
end(3)
"""

WITH_PARENT = """
import os, signal, time
from odt_sim._support.system import end_with_parent
parent = os.getpid()
if os.fork():
    time.sleep(0.3)
    os.kill(parent, signal.SIGKILL)
signal.signal(signal.SIGTERM, lambda *_: print("parent has ended") or exit())
end_with_parent(parent)
time.sleep(60)
"""


def test_process_ends_with_its_killed_parent() -> None:
    child = subprocess.run(
        [sys.executable, "-P", "-c", WITH_PARENT], stdout=subprocess.PIPE, env=environment({}), timeout=30, check=False
    )
    assert (child.returncode, child.stdout.decode()) == (-9, "parent has ended\n")


def test_end_writes_what_was_printed_and_frees_nothing() -> None:
    child = subprocess.run(
        [sys.executable, "-P", "-c", ENDS], stdout=subprocess.PIPE, env=environment({}), timeout=60, check=False
    )
    assert (child.returncode, child.stdout.decode().split()) == (3, ["answer"])
