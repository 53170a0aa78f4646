"""A run on a cluster that loses nodes gives the bits of an undisturbed run."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from disturbed import GIVEN, SECONDS, Disturbed, moments, outcome

CLUSTER = Path(__file__).parents[1] / "simulation" / "on_cluster" / "cluster_process.py"


@contextmanager
def three_nodes(folder: Path) -> Iterator[tuple[str, Callable[[str], str]]]:
    """Yield the address of a cluster, and a function that sends it a command of `cluster_process.py`."""
    folder.mkdir()
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, CLUSTER, folder], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    ) as process:

        def ask(line: str) -> str:
            print(line, file=process.stdin, flush=True)
            return process.stdout.readline().strip()

        yield process.stdout.readline().strip(), ask
        process.communicate(timeout=SECONDS)


@pytest.mark.parametrize("strategy", ["ditto", "fedadam", "scaffold"])
def test_removed_nodes_change_no_bit(strategy, long, undisturbed, tmp_path):
    """Three times a node dies with its actors, and another one joins."""
    if not long:
        pytest.skip("tests/simulation/on_cluster removes one node; see make torture")
    given = [*GIVEN, f"strategy={strategy}", "run.rounds=30"]
    expected = undisturbed(*given)
    with three_nodes(tmp_path / "hidden") as (address, ask):
        removable = int(ask("node").split()[0])
        run = Disturbed(tmp_path / "run", [*given, "backend.address=auto"], 0, RAY_ADDRESS=address)
        try:
            for moment in moments(0, 30, {"node": 3}):
                run.wait(moment)
                psutil.Process(removable).kill()
                removable = int(ask("node").split()[0])
            run.finish()
        finally:
            run.close()
    assert outcome(tmp_path / "run") == expected
