"""Words of the command that many tests say, and what it leaves."""

import json
import sys

FEW = ["model=digits_mlp", "backend=serial", "run.rounds=2", "fleet.devices=4", "fleet.unseen=1"]
COMMAND = [sys.executable, "-c", "import sys; from odt_sim.cli.main import command; sys.exit(command())"]
"""The command, for a process of its own."""


def runs(folder):
    """The folders of the runs below one."""
    return sorted({path.parent for path in folder.rglob("rounds.jsonl")})


def lines(path):
    """The records of a `.jsonl` file."""
    return [json.loads(line) for line in path.read_text().splitlines()]
