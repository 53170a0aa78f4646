"""Workers access a run's storage with the coordinator's credentials, or report why they cannot."""

import pytest
import token_storage  # noqa: F401  registers `token://`

from odt_sim.errors import SimulationError
from odt_sim.persistence.storage import Folder
from odt_sim.simulation.executors.ray import RayBackend
from odt_sim.strategies.averaging.local import Local

pytestmark = pytest.mark.usefixtures("ray_session")


def test_workers_get_the_credentials_of_the_coordinator(results, simulation, monkeypatch, tmp_path):
    """Ray and its workers were started without them."""
    monkeypatch.setenv("AWS_TOKEN", "of this process")
    settings = {"storage": f"token://AWS_TOKEN{tmp_path}/shared", "backend": RayBackend(actors=2)}
    whole = results(Local(), tmp_path / "serial")
    simulation(Local(), tmp_path / "ray", **settings).run()
    assert (tmp_path / "ray" / "devices.jsonl").read_bytes() == whole.devices
    assert sorted(Folder(tmp_path / "shared").names()) == sorted(Folder(tmp_path / "serial" / "checkpoint").names())


def test_worker_without_access_reports_its_own_error(simulation, monkeypatch, tmp_path):
    monkeypatch.setenv("OTHER_TOKEN", "of this process")
    settings = {"storage": f"token://OTHER_TOKEN{tmp_path}/shared", "backend": RayBackend(actors=2)}
    message = (
        r"cannot access the run's token://.*PermissionError: no credential OTHER_TOKEN.*; choose a place that all nodes"
    )
    with pytest.raises(SimulationError, match=message):
        simulation(Local(), tmp_path / "run", **settings).run()
