"""Run experiments on a file in a subprocess with limits; after a crash, the next subprocess runs the remaining ones.

The subprocess is `python -m odt_sim.doctor.trial`. Its standard input contains the request, as a line of JSON, and then
the file. Each experiment begins and ends by printing a line of JSON.
"""

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from odt_sim._support.system import end, environment
from odt_sim._support.text import one_line, typed_line
from odt_sim.device.engines import LITERT, RuntimeChoice
from odt_sim.device.verification_process import limit_resources
from odt_sim.doctor.experiments import possible, run
from odt_sim.doctor.subject import Roles, Subject
from odt_sim.errors import OdtSimError
from odt_sim.model.reading import flatbuffer

SECONDS = 60.0
"""The CPU time of a subprocess, and half of its wall-clock time, in seconds; a file of more than 60 MB gets one second
for each MB."""

QUIET = {"OPENBLAS_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}


@dataclass(frozen=True)
class Trial:
    """The results of the experiments.

    Attributes:
        found: The result of each experiment that ended, by name; it has the key `error` if the experiment failed.
        deaths: Why the process ended during an experiment, by the experiment's name.
    """

    found: dict[str, dict[str, Any]]
    deaths: dict[str, str]

    def result(self, experiment: str) -> dict[str, Any] | None:
        """Return the result of an experiment; None if it failed, crashed or was not possible."""
        found = self.found.get(experiment)
        return None if found is None or "error" in found else found

    @property
    def errors(self) -> dict[str, str]:
        """The errors of the experiments that failed, by name."""
        return {name: found["error"] for name, found in self.found.items() if "error" in found}


def tried(
    content: bytes,
    where: str,
    roles: Roles,
    runtime: RuntimeChoice = LITERT,
    experiments: Sequence[str] | None = None,
) -> Trial:
    """Run experiments on a file.

    Args:
        content: The file's bytes.
        where: Its name.
        roles: Its signatures by role.
        runtime: The runtime that runs it.
        experiments: The names of the experiments; by default those of a diagnosis that the roles allow.
    """
    trial = Trial({}, {})
    waiting = list(possible(roles) if experiments is None else experiments)
    while waiting:
        request = {
            "where": where,
            "roles": {role: dict(own) for role, own in roles.items()},
            "runtime": [runtime.name, runtime.python],
            "seconds": max(SECONDS, len(content) / 1e6),
            "experiments": waiting,
            "y": (trial.result("declared") or {}).get("y"),
        }
        lines, reason = _run(request, content)
        ended = {line["ends"]: line["found"] for line in lines if "ends" in line}
        trial.found.update(ended)
        waiting = [name for name in waiting if name not in ended]
        if waiting and reason is not None:
            begun = next((line["begins"] for line in reversed(lines) if "begins" in line), waiting[0])
            trial.deaths[begun] = reason
            waiting = [] if begun == "load" else [name for name in waiting if name != begun]
        elif waiting:
            break
    return trial


def _run(request: dict[str, Any], content: bytes) -> tuple[Sequence[dict[str, Any]], str | None]:
    """Return the lines of a subprocess, and why it ended early; None if it did not."""
    command = [sys.executable, "-P", "-m", "odt_sim.doctor.trial"]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(QUIET)
    )
    seconds = 2 * request["seconds"]
    try:
        output, errors = child.communicate(json.dumps(request).encode() + b"\n" + content, timeout=seconds)
        reason = _reason(child.returncode, errors.decode(errors="replace"))
    except subprocess.TimeoutExpired:
        child.kill()
        output, _ = child.communicate()
        reason = f"it did not finish within {seconds:.0f} s"
    return [json.loads(line) for line in output.decode(errors="replace").splitlines() if line.endswith("}")], reason


def _reason(code: int, errors: str) -> str | None:
    if code == 0:
        return None
    if code == -signal.SIGXCPU:
        return "it used too much CPU time"
    if code == -signal.SIGKILL or "bad_alloc" in errors:
        return "it was killed or ran out of memory"
    if code < 0:
        return f"it crashed ({signal.Signals(-code).name})"
    return (errors.strip().splitlines() or [f"exit code {code}"])[-1]


def _main() -> None:
    """Run the experiments of the request."""
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # keep what native code prints out of the results
    request = json.loads(sys.stdin.buffer.readline())
    content = sys.stdin.buffer.read()
    runtime = RuntimeChoice(*request["runtime"])
    if not runtime.runs_flex:  # TensorFlow reserves more memory than it uses, and writes files
        limit_resources(request["seconds"])
    signatures = flatbuffer.read(content, request["where"]).signatures
    subject = Subject(content, request["where"], signatures, request["roles"], runtime)
    y: tuple[int, ...] | None = tuple(request["y"]) if request["y"] else None
    for name in request["experiments"]:
        print(json.dumps({"begins": name}), file=lines)
        found = _measured(name, subject, y)
        if name == "declared" and "y" in found:
            y = tuple(found["y"])
        print(json.dumps({"ends": name, "found": found}), file=lines)


def _measured(name: str, subject: Subject, y: tuple[int, ...] | None) -> dict[str, Any]:
    try:
        return run(name, subject, y)
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
