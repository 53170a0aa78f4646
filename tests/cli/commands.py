"""Common arguments of the command, and readers of its files."""

import json

FEW = ["model=digits_mlp", "backend=serial", "run.rounds=2", "fleet.devices=4", "fleet.unseen=1"]


def runs(folder):
    """Return the folders of the runs below a folder."""
    return sorted({path.parent for path in folder.rglob("rounds.jsonl")})


def lines(path):
    """Return the records of a `.jsonl` file."""
    return [json.loads(line) for line in path.read_text().splitlines()]
