"""A cluster of three nodes, and runs on it in processes of their own, since a process uses one Ray."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_process import unshare
from ray import cloudpickle

from odt_sim import Fleet, Strategy, TrainingPlan
from odt_sim.simulation.ray import RayBackend

HERE = Path(__file__).parent
COMMAND = [sys.executable, "-c", "import sys; from odt_sim.cli.main import main; sys.exit(main())"]
SETTINGS = {
    "rounds": 3,
    "fleet": Fleet(unseen=1),
    "plan": TrainingPlan(epochs=1, learning_rate=0.05),
    "evaluate_every": 2,
}
SECONDS = 300  # a run takes a few, where nothing else uses the machine


class ThreeNodes:
    """A cluster that runs.

    Attributes:
        address: `host:port` of its head.
        hidden: A folder that one of the nodes does not see, where that is possible here.
    """

    def __init__(self, hidden: Path) -> None:
        self.hidden = hidden
        command = [sys.executable, HERE / "cluster_process.py", hidden]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        self.address = self._answer()

    def do(self, line: str) -> str:
        """Has the cluster's process obey; see `cluster_process.py`."""
        print(line, file=self._process.stdin, flush=True)
        return self._answer()

    def close(self) -> None:
        self._process.communicate(timeout=SECONDS)

    def _answer(self) -> str:
        answer = self._process.stdout.readline()
        assert answer, "the cluster's process has ended"
        return answer.strip()

    def run(self, folder: Path, strategy: Strategy, **settings: Any) -> "subprocess.CompletedProcess[str]":
        """Runs a simulation on the cluster; by default in two blocks, as these tests' own process does."""
        backend = RayBackend(self.address, **settings.pop("backend", {}))
        given = {
            "fewest_blocks": 2,
            "measured": False,
            **SETTINGS,
            "strategy": strategy,
            "directory": folder,
            "backend": backend,
            **settings,
        }
        folder.mkdir(parents=True)
        (folder / "given").write_bytes(cloudpickle.dumps(given))
        return self._child([sys.executable, HERE / "driver.py", folder / "given"], folder)

    def script(self, name: str, *arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
        """Runs a script of these tests in a folder, with the cluster's address as its first argument."""
        return self._child([sys.executable, HERE / name, self.address, *arguments], folder)

    def command(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Runs the command `odt-sim run` in the hidden folder, where `auto` finds the cluster."""
        given = [*COMMAND, "run", "model=softmax", "fleet.devices=4", "fleet.unseen=1", "run.rounds=1", *arguments]
        return self._child(given, self.hidden, **{"RAY_ADDRESS": self.address, **environment})

    def _child(self, command: list[Any], folder: Path, **more: str) -> "subprocess.CompletedProcess[str]":
        path = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path, **more}
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS)


@pytest.fixture(scope="session")
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeNodes]:
    cluster = ThreeNodes(tmp_path_factory.mktemp("hidden"))
    yield cluster
    cluster.close()


@pytest.fixture
def fourth_node(three_nodes: ThreeNodes) -> Iterator[tuple[int, str]]:
    """The process of the raylet and the id of a node more, which a test may end; the cluster forgets it after the test."""
    process, node = three_nodes.do("node").split()
    yield int(process), node
    three_nodes.do("gone")


@pytest.fixture
def apart(three_nodes: ThreeNodes) -> ThreeNodes:
    """The cluster, where one of its nodes really does not see a folder."""
    if not unshare():
        pytest.skip("no mount namespace may be made here (unshare)")
    return three_nodes


@pytest.fixture
def run_there(three_nodes: ThreeNodes, momentum, fleet_data) -> Callable[..., Any]:
    """Returns a function that runs a simulation on the cluster."""
    return lambda folder, strategy, **more: three_nodes.run(folder, strategy, model=momentum, data=fleet_data, **more)
