"""A real Ray cluster of three nodes on this machine, in a process of its own; it lives until its input ends.

    python cluster_process.py HIDDEN

Says `address` once the nodes are there. The third node has the resource `apart` and, where this process may have a mount
namespace, does not see the folder HIDDEN: it is to the others as another machine is. Each line of input is obeyed and
answered by a line: `node` adds a node and says its raylet's process id and its id, `gone` ends the nodes so added and waits
until the cluster has only its three, `pretend 1.2.3` lets the cluster say that it runs that Ray.
"""

import json
import os
import subprocess
import sys
import time

os.environ.pop("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", None)  # odt_sim sets it for a Ray of its own process

import ray
from ray._common.usage.usage_constants import CLUSTER_METADATA_KEY
from ray._private.node import Node
from ray.cluster_utils import Cluster
from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put

SECONDS = 120  # until a node that has come or gone is known
SIZE = {"num_cpus": 1, "object_store_memory": 80 << 20}
APART = "mount -t tmpfs none $1 && cd / && shift && exec $@"


def unshare() -> list[str]:
    """How a command gets mounts of its own here, as root or as any user; empty where it cannot."""
    ways = (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"])
    return next((way for way in ways if not subprocess.run([*way, "true"], capture_output=True).returncode), [])


def start_apart(address: str, hidden: str) -> subprocess.Popen[bytes]:
    """Starts the third node as a user would on another machine."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", f"--address={address}", "--num-cpus=1"]
    command += [
        "--object-store-memory=80000000",
        "--min-worker-port=0",
        "--max-worker-port=0",
        '--resources={"apart":1}',
    ]
    way = unshare()
    if way:
        command = [*way, "sh", "-c", APART, "sh", hidden, *command]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def pretend(version: str) -> None:
    metadata = json.loads(_internal_kv_get(CLUSTER_METADATA_KEY, namespace="cluster"))
    content = json.dumps({**metadata, "ray_version": version}).encode()
    _internal_kv_put(CLUSTER_METADATA_KEY, content, overwrite=True, namespace="cluster")


def wait_for(cluster: Cluster, nodes: int) -> None:
    until = time.monotonic() + SECONDS
    while (alive := sum(node["Alive"] for node in cluster.global_state.node_table())) != nodes:
        if time.monotonic() > until:
            raise TimeoutError(f"expected {nodes} nodes, found {alive} for {SECONDS} s")
        time.sleep(0.1)


def main(hidden: str) -> None:
    cluster = Cluster(initialize_head=True, head_node_args={**SIZE, "include_dashboard": False})
    apart = start_apart(cluster.address, hidden)
    try:
        cluster.add_node(**SIZE)
        wait_for(cluster, 3)
        added: list[Node] = []
        print(cluster.address, flush=True)
        for line in sys.stdin:
            word, *rest = line.split()
            if word == "node":
                added.append(cluster.add_node(**SIZE))
                print(added[-1].all_processes["raylet"][0].process.pid, added[-1].node_id, flush=True)
            elif word == "gone":
                while added:
                    cluster.remove_node(added.pop())
                wait_for(cluster, 3)
                print(flush=True)
            else:
                pretend(*rest)
                print(ray.__version__, flush=True)
    finally:
        apart.terminate()
        apart.wait()
        cluster.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
