"""A Ray cluster of three nodes on this machine, in its own process; it runs until its input ends.

    python cluster_process.py HIDDEN

Prints the cluster's address once the nodes have started. The third node has the resource `apart`. If this process may create
a mount namespace, that node does not see the folder HIDDEN, as if it were another machine. Two lines of input are commands,
each answered by a line: `node` adds a node and prints its raylet's process id and its id; `gone` removes the added nodes.
"""

import os
import subprocess
import sys
import time

os.environ.pop("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", None)  # odt_sim sets it when it starts Ray itself

from ray._private import utils
from ray.cluster_utils import Cluster

# The nodes of this process start as if `ray[default]` were not installed: without the dashboard's agents.
utils.get_dashboard_dependency_error = lambda: ImportError("not used")

SECONDS = 120  # until an added or removed node is known
SIZE = {"num_cpus": 1, "object_store_memory": 80 << 20}
APART = "mount -t tmpfs none $1 && cd / && shift && exec $@"


def unshare() -> list[str]:
    """Return the command that creates a mount namespace, as root or as any user; empty if neither works."""
    ways = (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"])
    return next((way for way in ways if not subprocess.run([*way, "true"], capture_output=True).returncode), [])


def start_apart(address: str, hidden: str) -> subprocess.Popen[bytes]:
    """Start the third node as a user would on another machine."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", f"--address={address}", "--num-cpus=1"]
    command += ["--object-store-memory=80000000", "--min-worker-port=0", "--max-worker-port=0"]
    command += ['--resources={"apart":1}']
    if way := unshare():
        command = [*way, "sh", "-c", APART, "sh", hidden, *command]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)  # errors go to this process's standard error


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
        added = []
        print(cluster.address, flush=True)
        for line in sys.stdin:
            if line.strip() == "node":
                added.append(cluster.add_node(**SIZE))
                print(added[-1].all_processes["raylet"][0].process.pid, added[-1].node_id, flush=True)
            else:
                while added:
                    cluster.remove_node(added.pop())
                wait_for(cluster, 3)
                print(flush=True)
    finally:
        apart.terminate()
        apart.wait()
        cluster.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
