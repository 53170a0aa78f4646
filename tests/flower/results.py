"""The results of a run."""

import json
from pathlib import Path
from typing import Any


def left_by(folder: Path) -> dict[str, Any]:
    """Return the content of a run's files that do not depend on time, including the server's states."""
    lines = {name: (folder / f"{name}.jsonl").read_text().splitlines() for name in ("rounds", "devices")}
    records = {name: [{**json.loads(line), "seconds": 0} for line in found] for name, found in lines.items()}
    files = [*folder.glob("*.tflite"), *folder.glob("checkpoint/server.*")]
    summary = {**json.loads((folder / "summary.json").read_text()), "seconds": 0}
    return {**records, "summary": summary, **{path.name: path.read_bytes() for path in files}}
