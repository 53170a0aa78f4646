"""Says for a worker that dies of itself and for one whose node is ended whether it is told as the worker's own death.

    python whose_death.py ADDRESS PROCESS NODE

ADDRESS is the cluster's, PROCESS that of the node's raylet, NODE the node's id. Prints two words: of the worker, of the node.
"""

import os
import signal
import sys
import time
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from odt_sim.simulation.ray.call_errors import LOST, is_own_death

TRIES = 5


@ray.remote(num_cpus=0)
class Host:
    def ready(self) -> None:
        return

    def die(self) -> None:
        os.abort()

    def wait(self) -> None:
        time.sleep(1000)


def told(call: Any) -> bool:
    try:
        ray.get(call)
    except LOST as error:
        return is_own_death(error)
    raise AssertionError("nothing has died")


def host_on(node: str) -> Any:
    return Host.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()


def main(address: str, process: int, node: str) -> None:
    ray.init(address, log_to_driver=False)
    there = host_on(node)
    ray.get(there.ready.remote())
    waiting = there.wait.remote()
    os.kill(process, signal.SIGTERM)
    here = ray.get_runtime_context().get_node_id()
    # A busy machine's Ray may call one that has just died out of reach, which counts against nobody.
    own = any(told(host_on(here).die.remote()) for _ in range(TRIES))
    print(own, told(waiting))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
