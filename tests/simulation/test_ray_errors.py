"""Errors of Ray as lines with advice."""

import time

import pytest
from ray.exceptions import ActorDiedError

from odt_sim.errors import SimulationError
from odt_sim.simulation.ray import RayBackend
from odt_sim.simulation.ray.call_errors import is_own_death
from odt_sim.simulation.ray.cluster import _explained


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (
            "RuntimeError: Version mismatch: The cluster was started with:\n    Ray: 2.50.0\n    Python: 3.11.1\n"
            "This process on node 10.0.0.1 was started with:\n    Ray: 2.60.0\n    Python: 3.11.7\n",
            "the cluster has Ray 2.50.0 and Python 3.11.1, this process has Ray 2.60.0 and Python 3.11.7; install",
        ),
        ("E rpc: Unauthenticated: no token\n", "the cluster requires its token; set RAY_AUTH_MODE=token"),
        ("Check failed: Failed to connect to socket at address\n", "this machine is not a node of the cluster; run"),
        (
            "ConnectionError: Could not find any running Ray.\n",
            "cannot reach Ray (Could not find any running Ray); start",
        ),
        ("", "cannot reach Ray (Ray ended without a reason); start a cluster"),
    ],
)
def test_refused_connection_is_explained(output, expected):
    assert _explained(output).startswith(expected)


def test_death_with_its_node_is_not_a_workers_own():
    assert is_own_death(ActorDiedError("The actor died: worker exit type: SYSTEM_ERROR"))
    assert not is_own_death(ActorDiedError("The actor died because its node has died."))
    assert not is_own_death(TimeoutError())


def test_system_exit_of_a_strategy_ends_the_run_in_one_line(ray_session, user, simulation, tmp_path):
    run = simulation(user.ExitsInLocal(), tmp_path, backend=RayBackend(actors=1))
    started = time.monotonic()
    with pytest.raises(SimulationError, match=r"SystemExit: 3 \(.*user_strategies\.py:\d+\)") as caught:
        run.run()
    assert "\n" not in str(caught.value)
    assert time.monotonic() - started < 60
