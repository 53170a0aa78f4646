"""A cluster of three nodes, and runs on it in separate processes, because a process can use only one Ray cluster."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from cluster_process import unshare
from ray import cloudpickle

from odt_sim import Fleet, Strategy, TrainingPlan
from odt_sim.simulation.executors.ray import RayBackend

HERE = Path(__file__).parent
COMMAND = [sys.executable, "-c", "import sys; from odt_sim.cli.main import main; sys.exit(main())", "run"]
SETTINGS = {
    "rounds": 3,
    "fleet": Fleet(unseen=1),
    "plan": TrainingPlan(epochs=1, learning_rate=0.05),
    "evaluate_every": 2,
    "fewest_blocks": 2,  # as in the tests' own process
}
SECONDS = 300  # a run takes a few on a quiet machine
STARTS = 3  # another process may take a port after Ray has chosen it


class ThreeNodes:
    """A running cluster.

    Attributes:
        address: `host:port` of its head.
        hidden: A folder that one of the nodes does not see, if this machine allows it.
    """

    OVERRIDES: ClassVar = ["model=softmax", "fleet.devices=4", "fleet.unseen=1", "run.rounds=1"]

    def __init__(self, hidden: Path) -> None:
        self.hidden = hidden
        self._errors = hidden.parent / "errors of the cluster"
        command = [sys.executable, HERE / "cluster_process.py", hidden]
        pipe = subprocess.PIPE
        for _ in range(STARTS):
            with self._errors.open("a") as errors:
                self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True)
            if address := self._process.stdout.readline():
                break
        assert address, self._ended()
        self.address = address.strip()

    def do(self, line: str) -> str:
        """Send a command to the cluster's process; see `cluster_process.py`."""
        print(line, file=self._process.stdin, flush=True)
        return self._answer()

    def close(self) -> None:
        self._process.communicate(timeout=SECONDS)

    def _answer(self) -> str:
        answer = self._process.stdout.readline()
        assert answer, self._ended()
        return answer.strip()

    def _ended(self) -> str:
        return f"the cluster's process has ended:\n{self._errors.read_text()[-2000:]}"

    def run(self, folder: Path, strategy: Strategy, **settings: Any) -> "subprocess.CompletedProcess[str]":
        """Run a simulation on the cluster."""
        backend = RayBackend(self.address, **settings.pop("backend", {}))
        pickled = {**SETTINGS, "strategy": strategy, "directory": folder, "backend": backend, **settings}
        folder.mkdir(parents=True)
        (folder / "pickled").write_bytes(cloudpickle.dumps(pickled))
        return self._child([sys.executable, HERE / "driver.py", folder / "pickled"], folder)

    def script(self, name: str, *arguments: Any, folder: Path) -> "subprocess.CompletedProcess[str]":
        """Run a script of these tests in a folder, with the cluster's address as its first argument."""
        return self._child([sys.executable, HERE / name, self.address, *arguments], folder)

    def command(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run `odt-sim run` in the hidden folder, where `auto` finds the cluster."""
        return self._child(
            [*COMMAND, *self.OVERRIDES, *arguments], self.hidden, **{"RAY_ADDRESS": self.address, **environment}
        )

    def _child(self, command: list[Any], folder: Path, **more: str) -> "subprocess.CompletedProcess[str]":
        path = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path, **more}
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS)


@pytest.fixture(scope="module")  # an idle cluster uses a sixth of a core
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeNodes]:
    cluster = ThreeNodes(tmp_path_factory.mktemp("hidden"))
    yield cluster
    cluster.close()


@pytest.fixture
def fourth_node(three_nodes: ThreeNodes) -> Iterator[tuple[int, str]]:
    """The raylet's process id and the id of an additional node, which a test may kill."""
    process, node = three_nodes.do("node").split()
    yield int(process), node
    three_nodes.do("gone")


@pytest.fixture
def apart(three_nodes: ThreeNodes) -> ThreeNodes:
    """The cluster, if one of its nodes cannot see the hidden folder."""
    if not unshare():
        pytest.skip("this machine allows no mount namespace (unshare)")
    return three_nodes


@pytest.fixture
def run_there(three_nodes: ThreeNodes, momentum, fleet_data) -> Callable[..., Any]:
    """Return a function that runs a simulation on the cluster."""
    return lambda folder, strategy, **more: three_nodes.run(folder, strategy, model=momentum, data=fleet_data, **more)
