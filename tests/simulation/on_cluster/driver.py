"""Runs a pickled simulation in a process of its own, which joins a cluster.

    python driver.py FILE

Prints the bytes in each node's object store where these are to be `measured`.
"""

import json
import sys
from pathlib import Path

import ray
from ray import cloudpickle
from ray._private.internal_api import node_stats

from odt_sim import OdtSimError, Simulation
from odt_sim.observers.base import Observer
from odt_sim.persistence.records import RoundRecord
from odt_sim.simulation import cohort


def stored() -> list[int]:
    nodes = [node for node in ray.nodes() if node["Alive"]]
    replies = [node_stats(node["NodeManagerAddress"], node["NodeManagerPort"], False) for node in nodes]
    return [reply.store_stats.object_store_bytes_used for reply in replies]


class Measures(Observer):
    def on_round(self, record: RoundRecord) -> None:
        if measured and record["round"] == 1:
            told["stored"] = stored()


told: dict[str, list[int]] = {}
given = cloudpickle.loads(Path(sys.argv[1]).read_bytes())
cohort.FEWEST_BLOCKS, measured = given.pop("fewest_blocks"), given.pop("measured")
simulation = Simulation(**given)
try:
    simulation.run(observers=[Measures()])
except OdtSimError as error:
    sys.exit(f"error: {error}")
print(json.dumps(told))
