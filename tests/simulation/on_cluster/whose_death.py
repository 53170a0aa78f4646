"""Check whether Ray's error distinguishes the death of a worker from that of its node.

    python whose_death.py ADDRESS PROCESS NODE

PROCESS is the raylet of NODE, which this script ends. Prints whether a worker that aborts counts as having died by itself,
and whether a worker on NODE does.
"""

import os
import signal
import sys
import time
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from odt_sim.simulation.executors.ray.call_errors import LOST, is_own_death

TRIES = 5


@ray.remote(num_cpus=0)
class Host:
    def ready(self) -> None:
        return

    def die(self) -> None:
        os.abort()

    def wait(self) -> None:
        time.sleep(1000)


def died_by_itself(call: Any, node: str) -> bool:
    try:
        ray.get(call)
    except LOST as error:
        return is_own_death(error, node)
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
    # On a busy machine Ray may call a worker that has just died unreachable, which does not count.
    own = any(died_by_itself(host_on(here).die.remote(), here) for _ in range(TRIES))
    print(own, died_by_itself(waiting, node))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
