"""The cost of profiles, availability and batteries per round of a large fleet, and the time to select a cohort.

Each run uses the devices, data and model of `scale.py` in a separate process. The runs take turns of a few rounds, so
that other load affects all alike. The first run has no clock. The output is the median of the rounds without
evaluation, in wall-clock and CPU time, with ratios to the first run. It is followed by the median and the longest CPU
time to select a cohort among the devices that are available with a charge above the floor, over those hours of two days
with enough devices.

    python benchmarks/fleet.py [--devices 1000000] [--cohort 100] [--epochs 1] [--kinds always daily charging markov]
"""

import argparse
import os
import statistics
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
from scale import Case, figures, model_file, run

from odt_sim import TrainableModel
from odt_sim.fleet.conditions import Conditions, conditions
from odt_sim.fleet.draws import choose_eligible
from odt_sim.fleet.habits import HOUR

WORKED = 5000
"""The number of devices that worked recently, so that their batteries have a state."""


def seconds_to_select(case: Case) -> list[float]:
    """Return the seconds of each selection."""
    found = conditions(case.fleet, case.devices, 0, TrainableModel.load(case.model))
    assert found is not None
    candidates = np.arange(case.devices)
    worked = np.sort(np.random.default_rng(0).choice(candidates, min(WORKED, case.devices), replace=False))
    batteries = found.batteries.after(
        worked, np.full(len(worked), 8 * HOUR), np.full(len(worked), 60.0), np.full(len(worked), 200.0)
    )
    taken = []
    for hour in range(9, 57):
        started = time.process_time()
        chosen = choose_eligible(
            candidates,
            case.cohort,
            lambda ids, at=hour * HOUR: _eligible(found, batteries, ids, at),
            np.random.default_rng(hour),
        )
        if len(chosen) == case.cohort:
            taken.append(time.process_time() - started)
    return taken


def _eligible(found: Conditions, batteries: object, ids: np.ndarray, at: float) -> np.ndarray:
    ids = ids[found.availability.available(ids, at)]
    return ids[batteries.usable(ids, at)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what availability and batteries cost a round.")
    parser.add_argument("--devices", type=int, default=1_000_000)
    parser.add_argument("--cohort", type=int, default=100, help="devices of a round")
    parser.add_argument("--epochs", type=int, default=1, help="of a device in a round, each of one step")
    parser.add_argument("--kinds", nargs="+", default=["always", "daily", "charging", "markov"])
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5, help="of a turn")
    options = parser.parse_args()
    shared = (options.devices, options.cohort, "fedavg", "serial", options.turns, options.rounds, 0, model_file(0))
    cases = [Case(*shared, options.epochs, kind) for kind in (None, *options.kinds)]
    print(f"{options.devices:,} devices, load {os.getloadavg()[0]:.1f}", flush=True)
    found = [figures(case, measured) for case, measured in zip(cases, run(cases), strict=True)]
    print("| availability | round ms | CPU ms | selection ms, median | longest |\n|---|---|---|---|---|")
    for case, each in zip(cases, found, strict=True):
        selection = [1e3 * seconds for seconds in seconds_to_select(case)] if case.availability else [0.0]
        both = [f"{each[name]:.1f} ({each[name] / found[0][name]:.2f})" for name in ("round ms", "CPU ms")]
        kind, times = case.availability or "none", " | ".join(both)
        print(f"| {kind} | {times} | {statistics.median(selection):.1f} | {max(selection):.1f} |", flush=True)


if __name__ == "__main__":
    main()
