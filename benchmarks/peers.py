"""A comparison of odt_sim with other simulators on four workloads, described in `peers/workloads.py`.

Every measurement runs in a separate process tree. The simulators take turns, so that all see the same state of the
machine. All train the same devices in the same rounds from the same weights: steps and parameters must be equal, and
final losses must agree. Each simulator other than odt_sim runs in the Python of a separate environment
(`peers/requirements-*.txt`; for Flower also `pip install --no-deps flwr==1.42.0`).

    python benchmarks/peers.py --with pfl=PYTHON fedjax=PYTHON flower=PYTHON bare=PYTHON [--repetitions 3]
        [--workloads softmax cnn lstm transfer] [--output peers.jsonl]

Each line of the output file is one measurement; `peers_picture.py` plots them. The printed tables are Markdown, with
medians and quartiles over the repetitions.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from peers.prepare import models, prepare
from peers.workloads import COHORT, WORKLOADS, Problem

HERE = Path(__file__).parent
TAG = "PEERS_TAG"  # an environment variable of all processes of a measurement, including daemons
SAMPLE_SECONDS = 0.5
Result = dict[str, Any]


@dataclass(frozen=True)
class Simulator:
    """The command of a simulator.

    Attributes:
        environment: The name of its environment in `--with`; empty for this environment.
        script: The script in `peers/`.
        settings: Environment variables.
        launcher: Arguments between the interpreter and the script.
    """

    environment: str
    script: str
    settings: Mapping[str, str] = field(default_factory=dict)
    launcher: tuple[str, ...] = ()


CORES = os.cpu_count() or 1
SIMULATORS = {
    "odt_sim, auto": Simulator("", "run_odt_sim.py", {"BACKEND": "auto"}),  # the default of the command
    "odt_sim, Ray": Simulator("", "run_odt_sim.py", {"BACKEND": "ray"}),
    "odt_sim, serial": Simulator("", "run_odt_sim.py", {"BACKEND": "serial"}),
    "pfl-research, 1 process": Simulator("pfl", "run_pfl.py"),
    f"pfl-research, {CORES} processes": Simulator(
        "pfl", "run_pfl.py", launcher=("-m", "torch.distributed.run", f"--nproc_per_node={CORES}")
    ),
    "FedJAX": Simulator("fedjax", "run_fedjax.py"),
    "Flower": Simulator("flower", "run_flower.py", {"RAY_USAGE_STATS_ENABLED": "0", "FLWR_TELEMETRY_ENABLED": "0"}),
    "bare PyTorch loop": Simulator("bare", "run_bare.py"),
}


class Memory(threading.Thread):
    """A thread that samples the total proportional set size (PSS) and the number of all processes with a tag.

    Attributes:
        samples: `(time, bytes, processes)`.
    """

    def __init__(self, tag: str) -> None:
        super().__init__(daemon=True)
        self._tag, self._processes = f"{TAG}={tag}".encode(), dict[int, bool]()
        self._ended = threading.Event()
        self.samples: list[tuple[float, int, int]] = []

    def run(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            sizes = [_pss(pid) for pid in self.pids()]
            self.samples.append((time.time(), sum(sizes), len(sizes)))

    def pids(self) -> list[int]:
        """Return the ids of the processes with the tag."""
        for pid in set(psutil.pids()) - set(self._processes):
            with suppress(OSError):
                self._processes[pid] = self._tag in Path(f"/proc/{pid}/environ").read_bytes()
        return [pid for pid, own in self._processes.items() if own and psutil.pid_exists(pid)]

    def end(self) -> None:
        """Stop sampling, and kill the remaining processes."""
        self._ended.set()
        self.join()
        for pid in self.pids():
            with suppress(psutil.Error):
                psutil.Process(pid).kill()


def _pss(pid: int) -> int:
    """Return a process's proportional set size in bytes; 0 if it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0


@contextmanager
def memory(tag: str) -> Iterator[Memory]:
    """Sample the memory of the processes with a tag during the block."""
    sampler = Memory(tag)
    sampler.start()
    try:
        yield sampler
    finally:
        sampler.end()


def measured(command: list[str], settings: Mapping[str, str], problem: Problem, timeout: float) -> Result:
    """Run a simulator on a workload and return its measurements.

    Raises:
        RuntimeError: The simulator failed, exceeded the timeout, or did not do the work of the workload.
    """
    tag = uuid.uuid4().hex
    workload = {"WORKLOAD": problem.name, "DATA": str(problem.folder), "PYTHONPATH": str(HERE), TAG: tag}
    started = time.time()
    with memory(tag) as sampler, tempfile.TemporaryFile("w+") as output:
        try:
            environment = {**os.environ, **workload, **settings}
            code = subprocess.run(
                command, env=environment, stdout=output, stderr=subprocess.STDOUT, timeout=timeout, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = f"after {timeout:.0f} s"
        output.seek(0)
        lines = output.read().splitlines()
    reports = [json.loads(line.removeprefix("RESULT ")) for line in lines if line.startswith("RESULT ")]
    if not reports:
        raise RuntimeError(f"no result (exit {code}): " + "\n".join(lines[-15:]))
    return figures(reports, started, sampler, problem)


def figures(reports: list[Result], started: float, sampler: Memory, problem: Problem) -> Result:
    """Return the results of a measurement from the reports of its processes.

    Raises:
        RuntimeError: The numbers of steps, rounds or parameters differ from those of the workload.
    """
    first, warm_up = reports[0], problem.warm_up
    marks, steps = first["marks"], sum(report["steps"] for report in reports)
    found = steps, first["parameters"], len(marks)
    expected = problem.expected_steps(), sum(w.size for w in problem.initial), problem.rounds
    if found != expected:
        raise RuntimeError(f"expected {expected} steps, parameters and rounds, found {found}")
    samples = [(size, count) for at, size, count in sampler.samples if at <= marks[-1]] or [(0, 0)]
    size, count = max(samples)
    return {
        "updates_per_second": COHORT * (len(marks) - warm_up) / (marks[-1] - marks[warm_up - 1]),
        "first_round_seconds": marks[0] - started,
        "measured_seconds": marks[-1] - marks[warm_up - 1],
        "pss_mb": size / 1e6,
        "processes": count,
        "load": os.getloadavg()[0],
        "rounds": len(marks),
        "steps": steps,
        "loss": first["loss"],
    }


def tables(lines: list[Result]) -> str:
    """Return a Markdown table per workload, which states whether the final losses agree."""
    parts = []
    for name, workload in WORKLOADS.items():
        if not (own := [line for line in lines if line["workload"] == name]):
            continue
        losses = [line["loss"] for line in own]
        spread = max(losses) / min(losses) - 1
        agree = f"{'agree within' if spread <= workload.tolerance else '**differ** by'} {spread:.1%}"
        parts += [
            f"#### {workload.title}\n",
            f"{own[0]['steps']:,} steps in {own[0]['rounds']} rounds; final losses {agree} ({min(losses):.3f}).\n",
            "| simulator | updates/s (quartiles) | first round, s | memory (PSS), MB | processes | load |",
            "|---|---|---|---|---|---|",
            *(row(simulator, own) for simulator in dict.fromkeys(line["simulator"] for line in own)),
            "",
        ]
    return "\n".join(parts)


def row(simulator: str, lines: list[Result]) -> str:
    """Return the table row of a simulator: medians, and for the rate also the quartiles."""
    own = [line for line in lines if line["simulator"] == simulator]
    low, rate, high = np.quantile([line["updates_per_second"] for line in own], [0.25, 0.5, 0.75])
    form = ".0f" if rate >= 100 else ".1f"
    keys = {"first_round_seconds": ".1f", "pss_mb": ".0f", "processes": ".0f", "load": ".1f"}
    rest = [f"{np.median([line[key] for line in own]):{spec}}" for key, spec in keys.items()]
    return f"| {simulator} | **{rate:{form}}** ({low:{form}}..{high:{form}}) | {' | '.join(rest)} |"


def command_of(simulator: Simulator, python: str) -> list[str]:
    return [python, *simulator.launcher, str(HERE / "peers" / simulator.script)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Four workloads on odt_sim and on its peers.")
    parser.add_argument("--with", dest="others", nargs="*", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds after which a measurement is ended")
    parser.add_argument("--output", type=Path, default=Path("peers.jsonl"))
    options = parser.parse_args()
    pythons = {"": sys.executable, **dict(other.split("=", 1) for other in options.others)}
    simulators = {name: each for name, each in SIMULATORS.items() if each.environment in pythons}
    files = {name: path for name, path in models().items() if name in options.workloads}
    lines, failed = list[Result](), False
    with tempfile.TemporaryDirectory() as folder, suppress(KeyboardInterrupt):
        prepare(Path(folder), files)
        for repetition in range(options.repetitions):
            for workload in options.workloads:
                for name, simulator in simulators.items():
                    settings = {"FEATURES": "1"} if workload == "transfer" else {}
                    settings |= {"MODEL": str(files[workload]), **simulator.settings}
                    command = command_of(simulator, pythons[simulator.environment])
                    try:
                        result = measured(command, settings, Problem(workload, Path(folder)), options.timeout)
                    except RuntimeError as error:
                        failed = True
                        print(f"{workload}, {name}: {error}", file=sys.stderr, flush=True)
                        continue
                    lines.append({"workload": workload, "simulator": name, "repetition": repetition, **result})
                    print(json.dumps(lines[-1]), flush=True)
                    with options.output.open("a") as file:
                        file.write(json.dumps(lines[-1]) + "\n")
    print(tables(lines))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
