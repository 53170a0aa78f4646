"""The head of a Ray cluster with its dashboard and two CPUs; it runs until its input ends.

Prints `[address, URL of the dashboard]`. Each line of input adds a node with one CPU, answered by the node's id.
"""

import json
import os
import sys

os.environ.pop("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", None)  # odt_sim sets it when it starts Ray itself

from ray.cluster_utils import Cluster

SIZE = {"object_store_memory": 80 << 20}

HEAD = {
    "num_cpus": 2,
    "include_dashboard": True,
    "dashboard_agent_listen_port": 0,
}  # another Ray cluster may use the default port

cluster = Cluster(initialize_head=True, head_node_args={**SIZE, **HEAD})
try:
    print(json.dumps([cluster.address, f"http://{cluster.head_node.webui_url}"]), flush=True)
    for _ in sys.stdin:
        print(cluster.add_node(**SIZE, num_cpus=1).node_id, flush=True)
finally:
    cluster.shutdown()
