"""Says for a worker that dies of itself and for one whose node is ended whether it is told as the worker's own death.

    python whose_death.py ADDRESS PROCESS

ADDRESS is the cluster's, PROCESS that of the node's raylet. Prints two words: of the worker, of the node.
"""

import os
import signal
import sys
import time
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from odt_sim.simulation.ray.result import LOST, is_workers

TRIES = 5


@ray.remote(num_cpus=0)
class Host:
    def raylet(self) -> int:
        return os.getppid()

    def die(self) -> None:
        os.abort()

    def wait(self) -> None:
        time.sleep(1000)


def told(call: Any) -> bool:
    try:
        ray.get(call)
    except LOST as error:
        return is_workers(error)
    raise AssertionError("nothing has died")


def main(address: str, process: int) -> None:
    ray.init(address, log_to_driver=False)
    nodes = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in ray.nodes() if node["Alive"]]
    hosts = [Host.options(scheduling_strategy=node).remote() for node in nodes]
    there = next(host for host in hosts if ray.get(host.raylet.remote()) == process)
    waiting = there.wait.remote()
    os.kill(process, signal.SIGTERM)
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    # A busy machine's Ray may call one that has just died out of reach, which counts against nobody.
    own = any(told(Host.options(scheduling_strategy=here).remote().die.remote()) for _ in range(TRIES))
    print(own, told(waiting))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
