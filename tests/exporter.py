"""A process that forks for each export, instead of a new Python process, so that TensorFlow is imported once.

The fork runs the code of `python -m odt_sim.export`, or a program of the tests that writes files with TensorFlow. As a
program it reads requests, a line of JSON each, and answers each with a line of JSON.
"""

import gc
import io
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from odt_sim._support.system import environment
from odt_sim.export import __main__ as export
from odt_sim.export.cache import QUIET


class Exporter:
    """A client that starts the process at the first export."""

    _child: "subprocess.Popen[str] | None" = None

    def run(self, spec: Mapping[str, Any], path: Path) -> "subprocess.CompletedProcess[str]":
        """Replace `odt_sim.export.cache.run`."""
        return self._fork("export", [path], json.dumps(spec), {"TMPDIR": str(path.parent)})

    def program(self, file: Path, *arguments: Any) -> None:
        """Run a program that writes files, which may import other modules of the tests."""
        child = self._fork(str(file), arguments, "", {"PYTHONPATH": str(Path(__file__).parent)})
        if child.returncode != 0:
            raise RuntimeError(child.stderr)

    def close(self) -> None:
        if self._child is not None:
            self._child.communicate()
            self._child = None

    def _fork(
        self, program: str, arguments: Sequence[Any], stdin: str, more: Mapping[str, str]
    ) -> "subprocess.CompletedProcess[str]":
        if self._child is None:
            pipe, command = subprocess.PIPE, [sys.executable, __file__]
            self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment(QUIET))
        variables = {**environment(QUIET), **more}
        request = [program, list(map(str, arguments)), stdin, os.getcwd(), variables]
        print(json.dumps(request), file=self._child.stdin, flush=True)
        code, errors = json.loads(self._child.stdout.readline())
        return subprocess.CompletedProcess([], code, stderr=errors)


EXPORTER = Exporter()


def serve() -> None:
    gc.disable()  # as in an export process; collections would also copy the pages that the forks share
    export._import_keras()  # imports TensorFlow, which starts no threads before its first operation
    own = [Path(__file__).parent, *os.environ["PYTHONPATH"].split(os.pathsep)]
    installed = [path for path in sys.path if Path(path) not in map(Path, own)]
    for line in sys.stdin:
        program, arguments, stdin, folder, variables = json.loads(line)
        with tempfile.TemporaryFile() as errors:
            child = os.fork()
            if not child:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                os.dup2(errors.fileno(), 2)
                os.chdir(folder)
                os.environ.clear()
                os.environ.update(variables)
                tempfile.tempdir = None
                sys.path[:] = [folder, *variables["PYTHONPATH"].split(os.pathsep), *installed]
                sys.argv[1:], sys.stdin = arguments, io.StringIO(stdin)
                os._exit(_code(program))
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            errors.seek(0)
            print(json.dumps([code, errors.read().decode(errors="replace")]), flush=True)
    os._exit(0)  # Python takes seconds to free imported modules


def _code(program: str) -> int:
    """Run a program in the fork and return its exit code."""
    try:
        if program == "export":
            return export.main()
        sys.path.insert(0, str(Path(program).parent))
        runpy.run_path(program, run_name="__main__")
        return 0
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stderr.flush()


if __name__ == "__main__":
    serve()
