"""Python subprocesses import this odt_sim, and may end at once."""

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


def test_end_writes_what_was_printed_and_frees_nothing() -> None:
    child = subprocess.run(
        [sys.executable, "-P", "-c", ENDS], stdout=subprocess.PIPE, env=environment({}), timeout=60, check=False
    )
    assert (child.returncode, child.stdout.decode().split()) == (3, ["answer"])
