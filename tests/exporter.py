"""A process that forks for each export, in place of a new Python for each, so that TensorFlow is imported once.

The fork runs the code of `python -m odt_sim.export`. As a program it reads requests, a line of JSON each, and answers each
with a line of JSON.
"""

import gc
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odt_sim.export import __main__ as export
from odt_sim.export.cache import QUIET
from odt_sim.subprocesses import environment


class Exporter:
    """Starts the process at the first export."""

    _child: "subprocess.Popen[str] | None" = None

    def run(self, spec: Mapping[str, Any], path: Path) -> "subprocess.CompletedProcess[str]":
        """Replace `odt_sim.export.cache.run`."""
        if self._child is None:
            pipe, command = subprocess.PIPE, [sys.executable, __file__]
            self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment(QUIET))
        variables = environment({**QUIET, "TMPDIR": str(path.parent)})
        print(json.dumps([spec, str(path), os.getcwd(), variables]), file=self._child.stdin, flush=True)
        code, errors = json.loads(self._child.stdout.readline())
        return subprocess.CompletedProcess([], code, stderr=errors)

    def close(self) -> None:
        if self._child is not None:
            self._child.communicate()


def serve() -> None:
    gc.disable()  # as in the process of an export; it would also copy the pages that the forks share
    export._import_keras()  # imports TensorFlow, which starts no threads before its first operation
    own = [Path(__file__).parent, *os.environ["PYTHONPATH"].split(os.pathsep)]
    installed = [path for path in sys.path if Path(path) not in map(Path, own)]
    for line in sys.stdin:
        spec, path, folder, variables = json.loads(line)
        with tempfile.TemporaryFile() as errors:
            child = os.fork()
            if not child:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                os.dup2(errors.fileno(), 2)
                os._exit(_exported(spec, path, folder, variables, installed))
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            errors.seek(0)
            print(json.dumps([code, errors.read().decode(errors="replace")]), flush=True)
    os._exit(0)  # Python takes seconds to free what it has imported


def _exported(spec: Any, path: str, folder: str, variables: Mapping[str, str], installed: list[str]) -> int:
    """Export as a new process does in a folder and with environment variables."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    tempfile.tempdir = None
    sys.path[:] = [folder, *variables["PYTHONPATH"].split(os.pathsep), *installed]
    sys.argv[1:], sys.stdin = [path], io.StringIO(json.dumps(spec))
    code = export.main()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    serve()
