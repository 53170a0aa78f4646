"""A process that exports many models, so that TensorFlow starts once.

It reads a JSON line per model with its specification, its path and its working folder, and answers with null or the error.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odt_sim.errors import ExportError, OdtSimError
from odt_sim.export.cache import QUIET


class Exporter:
    """The process, started with the first model."""

    _child: subprocess.Popen[str] | None = None

    def export(self, spec: Mapping[str, Any], path: Path) -> None:
        """Write the model of a specification, as `odt_sim.export.cache` does with a process each."""
        if self._child is None:
            environment = {**os.environ, **QUIET}
            command = [sys.executable, __file__]
            pipe = subprocess.PIPE
            self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
        print(json.dumps([spec, str(path), os.getcwd()]), file=self._child.stdin, flush=True)
        error = json.loads(self._child.stdout.readline())
        if error is not None:
            raise ExportError(error)

    def close(self) -> None:
        if self._child is not None:
            self._child.communicate()


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # nothing else is to be taken for an answer
    from odt_sim.export.__main__ import export_spec

    import keras  # isort: skip

    for line in sys.stdin:
        spec, path, folder = json.loads(line)
        os.chdir(folder)  # where the specification may name files
        keras.backend.clear_session()  # names and random states are those of a new process
        error = None
        try:
            export_spec(spec, Path(path))
        except OdtSimError as refused:
            error = str(refused)
        print(json.dumps(error), file=answers, flush=True)


if __name__ == "__main__":
    main()
