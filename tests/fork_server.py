"""A process that forks for each trial of a file, instead of a new Python process.

The fork runs the code of `python -m odt_sim.device.verification_process`. As a program it reads requests, a line of JSON
followed by the file, and answers each with a line of JSON.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time

from odt_sim.model.reading.verification import PATIENCE, Ending


class ForkServer:
    """A client that starts the process at the first trial."""

    _child: "subprocess.Popen[bytes] | None" = None

    def run(self, content: bytes, where: str, seconds: float) -> Ending:
        """Replace `odt_sim.model.reading.verification.run`."""
        if self._child is None:
            pipe = subprocess.PIPE
            variables = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # without threads, since forks lack them
            self._child = subprocess.Popen([sys.executable, __file__], stdin=pipe, stdout=pipe, env=variables)
        header = json.dumps([where, seconds, len(content)]).encode()
        self._child.stdin.write(header + b"\n" + content)
        self._child.stdin.flush()
        return Ending(*json.loads(self._child.stdout.readline()))

    def close(self) -> None:
        if self._child is not None:
            self._child.communicate()


def serve() -> None:
    from odt_sim.device import verification_process

    while line := sys.stdin.buffer.readline():
        where, seconds, size = json.loads(line)
        content = sys.stdin.buffer.read(size)
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.dup2(writer, 1)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            code = verification_process.main(content, where, seconds)
            sys.stdout.flush()
            os._exit(code)
        os.close(writer)
        print(json.dumps(_ending(child, reader, PATIENCE * seconds)), file=sys.stdout, flush=True)


def _ending(child: int, reader: int, seconds: float) -> tuple[int | None, str]:
    """Wait until the fork closes its output."""
    until, output = time.monotonic() + seconds, b""
    while select.select([reader], [], [], max(0.0, until - time.monotonic()))[0]:
        piece = os.read(reader, 1 << 16)
        if not piece:
            break
        output += piece
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        return None, ""
    os.close(reader)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), output.decode()


if __name__ == "__main__":
    serve()
