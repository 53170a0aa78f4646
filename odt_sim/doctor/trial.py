"""Run experiments on a file in a subprocess with limits; after a crash, the next subprocess runs the remaining ones.

The subprocess is `python -m odt_sim.doctor.trial REQUEST`, with the request as JSON. Each experiment begins and ends by
printing a line of JSON.
"""

import gc
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from odt_sim._support.system import end
from odt_sim._support.text import one_line, typed_line
from odt_sim.device.engines import LITERT, RuntimeChoice
from odt_sim.device.verification_process import limit_resources
from odt_sim.doctor.experiments import EXPERIMENTS, OF_DIAGNOSIS, Subject
from odt_sim.errors import OdtSimError
from odt_sim.model.reading.verification import Ending, run_module

SECONDS = 60.0
"""The CPU time of a subprocess, and half of its wall-clock time, in seconds; a file of more than 60 MB gets one second
for each MB."""


@dataclass(frozen=True)
class Trial:
    """The results of the experiments.

    Attributes:
        results: The result of each experiment that ended, by name; it has the key `error` if the experiment failed.
        deaths: Why the process ended during an experiment, by the experiment's name.
    """

    results: dict[str, dict[str, Any]]
    deaths: dict[str, str]

    def result(self, experiment: str) -> dict[str, Any] | None:
        """Return the result of an experiment; None if it failed, crashed or was not tried."""
        result = self.results.get(experiment)
        return None if result is None or "error" in result else result

    @property
    def errors(self) -> dict[str, str]:
        """The errors of the experiments that failed, by name."""
        return {name: result["error"] for name, result in self.results.items() if "error" in result}


def tried(
    content: bytes, where: str, runtime: RuntimeChoice = LITERT, experiments: Sequence[str] = OF_DIAGNOSIS
) -> Trial:
    """Run experiments on a file.

    Args:
        content: The file's bytes.
        where: Its name.
        runtime: The runtime that runs it.
        experiments: Names in `EXPERIMENTS`.
    """
    trial, waiting, seconds = Trial({}, {}), list(experiments), max(SECONDS, len(content) / 1e6)
    while waiting:
        request = json.dumps([where, runtime.name, runtime.python, seconds, waiting])
        ending = run_module("odt_sim.doctor.trial", [request], content, 2 * seconds)
        lines = [json.loads(line) for line in ending.output.splitlines() if line.endswith("}")]
        trial.results.update({line["ends"]: line["result"] for line in lines if "ends" in line})
        waiting = [name for name in waiting if name not in trial.results]
        if waiting:
            begun = next((line["begins"] for line in reversed(lines) if "begins" in line), waiting[0])
            trial.deaths[begun] = _reason(ending, 2 * seconds)
            waiting = [] if begun == "load" else [name for name in waiting if name != begun]
    return trial


def _reason(ending: Ending, seconds: float) -> str:
    if ending.code is None:
        return f"it did not finish within {seconds:.0f} s"
    if ending.code == -signal.SIGXCPU:
        return "it used too much CPU time"
    if ending.code == -signal.SIGKILL or "bad_alloc" in ending.errors:
        return "it was killed or ran out of memory"
    if ending.code < 0:
        return f"it crashed ({signal.Signals(-ending.code).name})"
    return (ending.errors.strip().splitlines() or [f"exit code {ending.code}"])[-1]


def _main() -> None:
    """Run the experiments of the request."""
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # keep what native code prints out of the results
    where, name, python, seconds, experiments = json.loads(sys.argv[1])
    subject = Subject(sys.stdin.buffer.read(), where, RuntimeChoice(name, python))
    if not subject.runtime.runs_flex:  # TensorFlow reserves more memory than it uses, and writes files
        limit_resources(seconds)
    for experiment in experiments:
        print(json.dumps({"begins": experiment}), file=lines)
        print(json.dumps({"ends": experiment, "result": _measured(experiment, subject)}), file=lines)


def _measured(experiment: str, subject: Subject) -> dict[str, Any]:
    try:
        return EXPERIMENTS[experiment](subject)
    except OdtSimError as error:
        return {"error": one_line(str(error).removeprefix(f"{subject.where}: "))}
    except MemoryError as error:
        return {"error": f"out of memory ({error})"}
    except Exception as error:  # a damaged file may cause any exception
        return {"error": typed_line(error)}


if __name__ == "__main__":
    gc.disable()  # the graph has many small objects, and the process ends soon
    _main()
    end(0)
