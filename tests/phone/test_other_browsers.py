"""A device in Firefox and in WebKit, the engine of every browser on an iPhone, against the simulation."""

from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest
from test_three_phones import Running, assert_same_results
from webdriver import Browser, started, wait_for

from odt_sim import Simulation, TrainableModel, TrainingPlan
from odt_sim.data import digits, federate, iid
from odt_sim.phone.backend import PhonesBackend
from odt_sim.simulation.executors.executor import Executor
from odt_sim.strategies import Ditto

PROGRAMS = {"firefox": ["firefox-esr"], "webkit": ["WebKitWebDriver", "Xvfb"]}


@pytest.fixture(scope="module", params=PROGRAMS)
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if not all(map(which, PROGRAMS[request.param])):
        pytest.skip(f"no {request.param}; make test-browsers installs it")
    with started(request.param, tmp_path_factory.mktemp(request.param)) as browser:
        yield browser


def test_device_gives_the_weights_of_the_simulation(
    other: Browser, digits_mlp: TrainableModel, assets: Path, tmp_path: Path
) -> None:
    def run(folder: str, backend: Executor | None) -> Simulation:
        data, plan = federate(digits(), iid, 1, 0), TrainingPlan(steps=3)
        return Simulation(digits_mlp, data, Ditto(), rounds=5, directory=tmp_path / folder, plan=plan, backend=backend)

    run("simulated", None).run(observers=[])
    backend = PhonesBackend(host="127.0.0.1", port=0, assets=str(assets))
    running = Running(run("phone", backend), backend)
    other.open(running.address())
    running.finish()
    assert_same_results(tmp_path / "phone", tmp_path / "simulated", 5)
    wait_for(other, "document.getElementById('status').textContent === 'The run has ended.'")
