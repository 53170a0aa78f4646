"""A Ray started by odt_sim is small and local to this machine; one started by the caller stays usable."""

import json
import subprocess
import sys
from ipaddress import ip_address

import pytest

LOCAL_RAY = """
from odt_sim.simulation.executors.ray import RayBackend  # before ray, which reads its settings when it is imported
import json, psutil, ray, threading
starter = threading.Thread(target=RayBackend().start)
starter.start()
starter.join()
ray.get(ray.remote(lambda: None).remote())  # workers listen, too
processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
commands = [" ".join(process.cmdline()) for process in processes]
print(json.dumps((commands, [
    (process.name(), connection.laddr.ip)
    for process in processes
    for connection in process.net_connections(kind="inet")
    if connection.status == psutil.CONN_LISTEN or (connection.type == 2 and not connection.raddr)  # 2: UDP
])))
"""


@pytest.mark.slow
def test_local_ray_listens_on_loopback_and_outlives_the_starting_thread():
    child = subprocess.run([sys.executable, "-c", LOCAL_RAY], check=True, capture_output=True, text=True, timeout=300)
    commands, listening = json.loads(child.stdout.splitlines()[-1])
    sockets = [(name, ip_address(address)) for name, address in listening]
    assert {"gcs_server", "raylet"} <= {name for name, _ in sockets}
    assert [(name, str(address)) for name, address in sockets if not _is_loopback(address)] == []
    unused = ("monitor.py", "dashboard.py")  # services that no run uses
    assert [command for command in commands if any(name in command for name in unused)] == []
    assert any("--minimal" in command for command in commands)  # the agent that the raylet starts


CALLERS_RAY = """
from odt_sim.simulation.executors.ray import RayBackend  # before ray, which reads its settings when it is imported
import sys, ray
from odt_sim import Simulation, TrainableModel
from odt_sim.data import digits, federate, iid
from odt_sim.strategies import FedAvg

ray.init(address="local", num_cpus=1, include_dashboard=False)
data = federate(digits(), iid, devices=2, seed=0)
for folder in ("first", "second"):
    Simulation(TrainableModel.load(sys.argv[1]), data, FedAvg(), rounds=1, directory=folder, backend=RayBackend("auto")).run()
    print(ray.get(ray.remote(lambda: "free").remote(), timeout=60))
"""


@pytest.mark.slow
def test_run_gives_the_cpus_of_the_callers_ray_back(softmax, tmp_path):
    (tmp_path / "softmax.tflite").write_bytes(softmax.content)
    command = [sys.executable, "-c", CALLERS_RAY, "softmax.tflite"]
    child = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=300)
    assert child.stdout.split() == ["free", "free"]


def _is_loopback(address):
    mapped = getattr(address, "ipv4_mapped", None)  # Python 3.11 does not call `::ffff:127.0.0.1` a loopback address
    return (mapped or address).is_loopback
