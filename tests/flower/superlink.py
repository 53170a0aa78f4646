"""A SuperLink and its SuperNodes in separate processes, on loopback."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

START, RUN = 300, 900  # seconds, far more than needed
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "NO_COLOR": "1",
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # Flower's commands start other commands of Flower
}
APP = Path(__file__).parent / "app"


@dataclass(frozen=True)
class SuperLink:
    """A running SuperLink, and the logs of its processes.

    Attributes:
        folder: Flower's home, and the logs.
        environment: The environment of Flower's commands.
    """

    folder: Path
    environment: dict[str, str]

    def run(self, task: str, results: Path) -> None:
        """Run the app with a task, and wait until it ends."""
        config = f'task="{task}" folder="{results}"'
        command = [script("flwr"), "run", str(APP), "test", "--stream", "--run-config", config]
        log = self.folder / "flwr.log"
        with processes([command], self.environment, log) as [run]:
            assert run.wait(RUN) == 0, log.read_text()  # it is 0 even if the app fails, which the results show


@contextmanager
def superlink(folder: Path, nodes: int) -> Iterator[SuperLink]:
    """Run a SuperLink and SuperNodes."""
    port, *own = free_ports(nodes + 1)
    environment = {**os.environ, **QUIET, "FLWR_HOME": str(folder)}
    connection = f'[superlink]\ndefault = "test"\n\n[superlink.test]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    (folder / "config.toml").write_text(connection)
    common = ["--insecure", "--host", "127.0.0.1"]
    link = [script("flower-superlink"), *common, "--port", str(port), "--disable-runtime-dependency-installation"]
    fleet = [
        [
            script("flower-supernode"),
            *common,
            *("--superlink", f"127.0.0.1:{port}", "--port", str(own_port)),
            *("--node-config", f"partition-id={i} num-partitions={nodes}"),
        ]
        for i, own_port in enumerate(own)
    ]
    with ExitStack() as stack:
        stack.enter_context(processes([link], environment, folder / "superlink.log"))
        wait_for(port, folder / "superlink.log")
        stack.enter_context(processes(fleet, environment, folder / "supernodes.log"))
        yield SuperLink(folder, environment)


@contextmanager
def processes(
    commands: Sequence[Sequence[str]], environment: dict[str, str], log: Path
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run commands, each in a separate process group, which is killed at the end."""
    started: list[subprocess.Popen[bytes]] = []
    with log.open("ab") as out:
        try:
            for command in commands:
                started.append(
                    subprocess.Popen(command, env=environment, stdout=out, stderr=out, start_new_session=True)
                )
            yield started
        finally:
            for process in started:
                with suppress(ProcessLookupError):  # the process has ended
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def wait_for(port: int, log: Path) -> None:
    """Wait until a port is open."""
    for _ in range(START * 10):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"the SuperLink does not answer: {log.read_text()}")


def free_ports(count: int) -> list[int]:
    """Return ports that are currently free."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def script(name: str) -> str:
    """Return the path of a command of this environment."""
    return str(Path(sys.executable).with_name(name))
