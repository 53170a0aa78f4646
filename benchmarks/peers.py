"""The same work on odt_sim and on other simulators, side by side in one run.

The peers' folder holds the workload (`bench_common.py`: data, memory sampler, report) and a script for each peer. Every
measurement is a process of its own; the processes take turns, so that all see the same state of the machine.

    python benchmarks/peers.py [--peers ../shared/peers] [--repetitions 3]
        [--with pfl=/path/to/its/python flower=/path/to/its/python fedjax=/path/to/its/python bare=...]
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from workload import shipped_file

ROOT = Path(__file__).resolve().parents[1]
OWN = {"odt_sim, Ray": {"BACKEND": "ray"}, "odt_sim, serial": {"BACKEND": "serial"}}
SETTINGS = {"pfl": {"THREADS": "1"}, "flower": {"FRAMEWORK": "torch"}, "bare": {"FRAMEWORK": "torch"}}
COLUMNS = {
    "first round, s": ("time_to_first_round_s", ".1f"),
    "updates/s": ("client_updates_per_s", ".1f"),
    "peak memory of all processes, PSS, MB": ("peak_pss_mb_sum", ".0f"),
    "sum of RSS, MB": ("peak_rss_mb_sum", ".0f"),
    "processes": ("procs_at_peak", ".0f"),
    "load": ("loadavg", ".1f"),
}

Result = dict[str, Any]


def measured(python: str, script: Path, settings: dict[str, str], peers: Path) -> Result | None:
    """Return the report of a script, or None after printing why it failed."""
    environment = {name: value for name, value in os.environ.items() if name != "BENCH_TAG"}
    environment |= {**settings, "PYTHONPATH": str(peers)}
    run = subprocess.run([python, script], env=environment, capture_output=True, text=True, check=False)
    lines = [line for line in run.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        print(f"{script.name} gave no result (exit code {run.returncode}):\n{run.stderr[-2000:]}", file=sys.stderr)
        return None
    print(lines[-1], flush=True)
    result: Result = json.loads(lines[-1].removeprefix("RESULT "))
    return result


def table_of(results: dict[str, list[Result]]) -> Table:
    """Return a row for each simulator: the median of its repetitions, with minimum and maximum in brackets."""
    table = Table("simulator", *COLUMNS)
    for name, runs in results.items():
        cells = []
        for key, form in COLUMNS.values():
            values = [run[key] for run in runs]
            cells.append(f"{np.median(values):{form}} ({min(values):{form}}..{max(values):{form}})")
        table.add_row(name, *cells)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description="The peers' workload on odt_sim and on its peers.")
    default = os.environ.get("PEERS_DIR", ROOT.parent / "shared" / "peers")
    parser.add_argument("--peers", type=Path, default=default, help="the folder with bench_common.py")
    parser.add_argument("--with", dest="others", nargs="*", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    peers = options.peers.resolve()
    if not (peers / "bench_common.py").is_file():
        print(f"skipped: no bench_common.py in {peers}; give the peers' folder with --peers or PEERS_DIR")
        return 0
    model = {"MODEL": str(shipped_file("mnist_cnn"))}  # exported before anything is measured
    own = Path(__file__).with_name("bench_odt_sim.py")
    runs = {name: (sys.executable, own, {**settings, **model}) for name, settings in OWN.items()}
    for name, python in (other.split("=", 1) for other in options.others):
        runs[name] = (python, peers / f"bench_{name}.py", SETTINGS.get(name, {}))
    results: dict[str, list[Result]] = {}
    for _ in range(options.repetitions):
        for name, (python, script, settings) in runs.items():
            if result := measured(python, script, settings, peers):
                results.setdefault(name, []).append(result)
    Console(width=140).print(table_of(results))
    return 0 if len(results) == len(runs) else 1


if __name__ == "__main__":
    sys.exit(main())
