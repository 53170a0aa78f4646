"""What Ray adds to `executor_conformance.py`: all strategies, code that changes, and workers that die."""

import importlib
import json
import os
import socket
import subprocess
import sys

import numpy as np
import psutil
import pytest

from odt_sim.data import Dataset, federate, iid
from odt_sim.errors import SimulationError
from odt_sim.observers.base import Observer
from odt_sim.simulation.executors.processes import ProcessesBackend
from odt_sim.simulation.executors.ray import RayBackend, actors, calls
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.averaging.fedavg_finetune import FedAvgFineTune
from odt_sim.strategies.averaging.local import Local

JOIN = """
import sys, time
from odt_sim.errors import SimulationError
from odt_sim.simulation.executors.ray import RayBackend
started = time.perf_counter()
try:
    RayBackend(sys.argv[1]).start()
except SimulationError as error:
    print(time.perf_counter() - started, error)
"""

pytestmark = pytest.mark.usefixtures("ray_session")


@pytest.fixture(scope="module", autouse=True)
def no_ray_answers():
    """Yield an address without Ray, while a process tries to join it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        command = [sys.executable, "-c", JOIN, address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
            yield address, child
            child.kill()


@pytest.fixture(scope="module")
def four_devices(clouds, spread):
    """Return the clouds over 4 devices, each of which may have an actor."""
    return spread(clouds, 4)


@pytest.mark.slow
@pytest.mark.parametrize("backend", [RayBackend(actors=2), ProcessesBackend(2)], ids=["ray", "processes"])
def test_cached_embeddings_give_the_serial_bits(backend, frozen, results, tmp_path):
    """Workers cache embeddings, and devices change workers from round to round."""
    serial = results(FedAvgFineTune(max_epochs=1), tmp_path / "serial", model=frozen)
    results(FedAvgFineTune(max_epochs=1), tmp_path / "found", model=frozen, backend=backend).assert_same_bits(serial)


def test_strategy_that_cannot_be_sent_to_actors_is_refused(simulation, user, tmp_path):
    with pytest.raises(
        SimulationError, match=r"^strategy KeepsALock: cannot be sent to Ray's actors: cannot pickle"
    ) as caught:
        simulation(user.KeepsALock(), tmp_path, backend=RayBackend(actors=1)).run()
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("backend", [RayBackend(actors=2), ProcessesBackend(2)], ids=["ray", "processes"])
def test_edited_and_reloaded_module_is_that_of_workers(backend, results, tmp_path, monkeypatch):
    """Actors outlive a job and keep their imported modules."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    name = f"edited_{type(backend).__name__.lower()}"
    deployed = []
    for factor in ("0.5", "0.0625"):
        text = "from odt_sim.strategies import FedAvg\n\n\nclass Edited(FedAvg):\n    def deploy(self, device, broadcast):\n"
        (tmp_path / f"{name}.py").write_text(f"{text}        return {factor} * super().deploy(device, broadcast)\n")
        module = importlib.reload(sys.modules[name]) if name in sys.modules else importlib.import_module(name)
        found = results(module.Edited(), tmp_path / factor, rounds=1, backend=backend)
        found.assert_same_bits(results(module.Edited(), tmp_path / f"{factor}_serial", rounds=1))
        deployed.append(found.devices)
    assert deployed[0] != deployed[1]


def test_module_edited_after_its_import_is_refused_on_ray(simulation, tmp_path, monkeypatch):
    """Otherwise `aggregate` would run the earlier code, and `local` and `deploy` the edited code."""
    monkeypatch.syspath_prepend(tmp_path)
    file, text = (
        tmp_path / "edited_later.py",
        "from odt_sim.strategies import FedAvg\n\n\nclass Edited(FedAvg):\n    factor = ",
    )
    file.write_text(f"{text}1\n")
    strategy = importlib.import_module("edited_later").Edited()
    file.write_text(f"{text}0.25\n")
    with pytest.raises(
        SimulationError, match=r"^strategy Edited: workers import different code than .*importlib\.reload"
    ):
        simulation(strategy, tmp_path / "run", backend=RayBackend(actors=1)).run()


class Asserts(FedAvg):
    def local(self, device, broadcast):
        assert device.id in range(device.id + 1)
        return super().local(device, broadcast)


@pytest.mark.slow
def test_class_whose_assertions_pytest_has_rewritten_runs_on_ray(results, tmp_path):
    results(Asserts(), tmp_path / "run", rounds=1, backend=RayBackend(actors=1))


def test_what_a_run_keeps_in_a_class_is_no_change_of_its_code(user, results, tmp_path):
    for name in ("first", "second"):
        results(user.KeepsInItsClass(), tmp_path / name, rounds=1, backend=RayBackend(actors=1))


@pytest.mark.slow
def test_next_job_reuses_the_actors(user, results, tmp_path):
    def processes(directory):
        rows = results(user.RecordsProcess(), directory, rounds=1, backend=RayBackend(actors=2)).devices.splitlines()
        return {json.loads(row)["process"] for row in rows}

    first, second = processes(tmp_path / "first"), processes(tmp_path / "second")
    assert len(first) == 2
    assert os.getpid() not in first
    assert first == second


@pytest.mark.slow
def test_one_device_per_actor_gives_the_serial_bits_and_each_device_a_process(user, results, four_devices, tmp_path):
    backend = RayBackend(devices_per_actor=1)
    for strategy in (FedAvgFineTune(max_epochs=2), user.SendsItsNumber()):
        serial = results(strategy, tmp_path / f"{strategy.name} serial", data=four_devices)
        found = results(strategy, tmp_path / f"{strategy.name} ray", data=four_devices, backend=backend)
        found.assert_same_bits(serial)
    rows = results(user.RecordsProcess(), tmp_path / "who", data=four_devices, rounds=1, backend=backend).devices
    assert len({json.loads(row)["process"] for row in rows.splitlines()}) == 4


def test_strategy_of_the_main_module_reaches_the_workers(results, tmp_path):
    class Halfway(FedAvg):  # as in a notebook
        def deploy(self, device, broadcast):
            before = super().deploy(device, broadcast)
            device.train(epochs=1)
            return 0.5 * (before + device.parameters())

    serial = results(Halfway(), tmp_path / "serial")
    results(Halfway(), tmp_path / "ray", backend=RayBackend(actors=2)).assert_same_bits(serial)


# --- workers that die --------------------------------------------------------------------------------------------------


def killed(user, folder, times):
    folder.mkdir()
    return {"strategy": user.KillsItsWorker(folder, times)}


@pytest.mark.slow
@pytest.mark.parametrize("dedicated", [False, True])
def test_worker_killed_within_a_block_changes_no_bit(
    dedicated, user, results, fleet_data, four_devices, tmp_path, monkeypatch
):
    """All kills happen at one device; one more would exclude it, here after three instead of five."""
    monkeypatch.setattr(calls, "TRIES", 3)
    backend = RayBackend(devices_per_actor=1) if dedicated else RayBackend(actors=2)
    data = four_devices if dedicated else fleet_data
    undisturbed = results(**killed(user, tmp_path / "0", 0), data=data, directory=tmp_path / "undisturbed")
    times = 2 if dedicated else 3  # the first death is at several devices
    found = results(**killed(user, tmp_path / "1", times), data=data, directory=tmp_path / "found", backend=backend)
    assert len(list((tmp_path / "1").iterdir())) == times
    found.assert_same_bits(undisturbed)


@pytest.mark.slow
def test_workers_killed_between_rounds_change_no_bit(results, simulation, tmp_path):
    dead, serial = [], results(Local(), tmp_path / "serial")

    class Kills(Observer):
        def on_round(self, record):
            if record["round"] == 1:
                for process in psutil.Process().children(recursive=True):
                    if process.name().startswith("ray::_Host"):
                        process.kill()
                        dead.append(process.pid)

    simulation(Local(), tmp_path / "found", backend=RayBackend(actors=2)).run(observers=[Kills()])
    assert len(dead) >= 2
    type(serial).read(tmp_path / "found").assert_same_bits(serial)


@pytest.mark.slow
def test_worker_that_dies_while_starting_ends_the_run(user, simulation, results, tmp_path, monkeypatch):
    monkeypatch.setattr(actors, "TRIES", 2)  # instead of 5
    run = simulation(user.DiesWhileLoading(), tmp_path / "dies", backend=RayBackend(actors=1))
    with pytest.raises(
        SimulationError, match=r"backend ray: a worker died 2 times while starting \(.+\); run it"
    ) as caught:
        run.run()
    assert "\n" not in str(caught.value)
    results(FedAvg(), tmp_path / "next", rounds=1, backend=RayBackend(actors=1))  # Ray still works


def test_memory_storage_is_refused_on_ray(simulation, tmp_path):
    run = simulation(FedAvg(), tmp_path, storage="memory://odt_sim/run", backend=RayBackend(actors=1))
    with pytest.raises(
        SimulationError,
        match=r"^run\.storage: node \S+ \(.+\) cannot access the run.s memory://odt_sim/run \(.*no such",
    ):
        run.run()


# --- starting ----------------------------------------------------------------------------------------------------------


def test_more_actors_than_memory_are_refused(simulation, tmp_path):
    """20,000 actors need more than a terabyte."""
    x, y = np.zeros((60_000, 6), np.float32), np.arange(60_000, dtype=np.int32) % 3
    data = federate(Dataset("many", x, y, classes=3), iid, 20_000, seed=0)
    run = simulation(FedAvg(), tmp_path, data=data, backend=RayBackend(devices_per_actor=1))
    with pytest.raises(SimulationError, match=r"20000 actors need about \d+ MB each, only \d+ fit \(nodes: 1\)"):
        run.run()


def test_process_uses_one_ray():
    RayBackend().start()  # the same again
    with pytest.raises(SimulationError, match=r"backend\.address=auto: this process already uses the Ray at local"):
        RayBackend("auto").start()
    with pytest.raises(SimulationError, match=r"backend\.runtime_env: this process already uses Ray with none, and"):
        RayBackend(runtime_env={"env_vars": {"A": "1"}}).start()


def test_address_of_another_service_is_refused_within_30_seconds(no_ray_answers):
    address, child = no_ray_answers
    output, _ = child.communicate(timeout=30)
    seconds, error = output.split(maxsplit=1)
    assert float(seconds) < 30
    assert error.startswith(f"backend.address={address}: cannot reach Ray")
