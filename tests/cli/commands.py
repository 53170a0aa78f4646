"""Words of the command that many tests say, and what it leaves."""

import json
import sys

FEW = ["model=digits_mlp", "backend=serial", "run.rounds=2", "fleet.devices=4", "fleet.unseen=1"]
COMMAND = [sys.executable, "-c", "import sys; from odt_sim.cli.main import command; sys.exit(command())"]
"""The command, for a process of its own."""

INTERRUPTED_AT = """
import os, sys
from odt_sim.cli.main import command
number, module = int(sys.argv[1]), sys.argv[2]
class Interrupts:
    def find_spec(self, name, *rest):
        if name == module:
            print("there", flush=True)
            os.kill(os.getpid(), number)
sys.meta_path.insert(0, Interrupts())
sys.argv[1:3] = []
sys.exit(command())
"""
"""The command as a program that sends itself a signal, the first argument, where it imports a module, the second."""


def runs(folder):
    """The folders of the runs below one."""
    return sorted({path.parent for path in folder.rglob("rounds.jsonl")})


def lines(path):
    """The records of a `.jsonl` file."""
    return [json.loads(line) for line in path.read_text().splitlines()]
