"""The subprocess of `trial`: `python -m odt_sim.doctor.trial_process`.

Standard input contains the request, as a line of JSON, and then the file. Each experiment begins and ends by printing a
line of JSON.
"""

import gc
import json
import os
import sys
from typing import Any

from odt_sim._support.system import end
from odt_sim._support.text import one_line, typed_line
from odt_sim.device.engines import RuntimeChoice
from odt_sim.device.verification_process import limit_resources
from odt_sim.doctor.experiments import run
from odt_sim.doctor.subject import Subject
from odt_sim.errors import OdtSimError
from odt_sim.model import flatbuffer


def main() -> None:
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
    main()
    end(0)
