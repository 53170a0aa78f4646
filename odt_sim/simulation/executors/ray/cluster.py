"""Start a Ray for this process, or join a cluster."""

import errno
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import ray
from ray._private import utils
from ray._private.node import Node

from odt_sim._support.system import share_arenas
from odt_sim._support.text import first_line, one_line
from odt_sim.device.engines import quiet
from odt_sim.errors import SimulationError
from odt_sim.simulation.executors.submitted import JOB_CONFIG

SYSTEM = {
    # The backend itself starts actors in waves; Ray would warn about many actors in any case.
    "worker_maximum_startup_concurrency": 1000,
    # Smaller results go directly to the coordinator: for a small model's sums, this halves the cost of the object
    # store.
    "max_direct_call_object_size": 2 << 20,
}

LOOPBACK = "127.0.0.1"

UNUSED_SERVICES = ("start_monitor", "start_log_monitor", "start_api_server")
"""Methods of Ray's `Node` that start the autoscaler, the log monitor and the dashboard's server."""

DASHBOARD = "get_dashboard_dependency_error"
"""The function with which Ray decides on each node whether to start the dashboard's agent, which polls that server."""

REFUSALS = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST}
"""The system's error numbers if a folder of Ray cannot be created or written."""

UNWRITABLE = "make it writable, or set HOME, for Ray's token, or RAY_TMPDIR to a writable folder"

TRIAL_SECONDS = 25
JOIN_SECONDS = 300
"""Seconds after which starting or joining Ray fails; on a loaded machine, a start may take a minute."""

TRIAL = """
import logging, os, sys, ray
try:
    ray.init(sys.argv[1], log_to_driver=False, logging_level=logging.ERROR)
except Exception as error:
    print(error)
    sys.exit(1)
os._exit(0)
"""

_joined: dict[str, tuple[str, Mapping[str, Any]]] = {}  # by Ray session: the address and the runtime environment


def join_cluster(address: str, runtime_env: Mapping[str, Any]) -> None:
    """Start Ray or join a cluster, unless this process has done so before.

    Args:
        address: `local` for a Ray of this process, `auto` or `host:port` for a running cluster.
        runtime_env: Ray's runtime environment for all processes of the job; empty for each node's own environment.

    Raises:
        SimulationError: No cluster answers at the address, its versions differ, or this process uses another cluster.
    """
    if ray.is_initialized():
        _check_joined(address, runtime_env)
        _restore_sigterm()  # a thread may have started it
        return
    share_arenas()  # before Ray starts its threads
    if address == "local":
        # Options with an underscore and Node are internal to Ray; .ci/ray_versions tests them on the oldest and newest
        # release.
        with _used_services_only():
            _init(address, runtime_env, include_dashboard=False, _node_ip_address=LOOPBACK, _system_config=SYSTEM)
    else:
        check_answers(address)
        if reason := _refusal(address):
            raise SimulationError(f"backend.address={address}: {reason}")
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # the nodes' logs record the death of a node
        with quiet():
            _init(address, runtime_env)
    _joined[session()] = address, runtime_env


@contextmanager
def _used_services_only() -> Iterator[None]:
    """Start Ray without the services that a local Ray does not use, as if `ray[default]` were not installed.

    `ray.init` has no option for this. If a release of Ray renames the functions, all services start.
    """
    places = [(Node, name) for name in UNUSED_SERVICES] + [(utils, DASHBOARD)]
    functions = [(place, name, getattr(place, name)) for place, name in places if hasattr(place, name)]
    for place, name, _ in functions:
        setattr(place, name, _absent if name == DASHBOARD else _nothing)
    try:
        yield
    finally:
        for place, name, function in functions:
            setattr(place, name, function)


def _absent() -> ImportError:
    """Replace the function named by `DASHBOARD`."""
    return ImportError("not used")


def _nothing(node: Node, **_: Any) -> None:
    """Replace a method named by `UNUSED_SERVICES`."""


def session() -> str:
    """Return an id of this process's connection to Ray."""
    context = ray.get_runtime_context()
    return f"{context.get_node_id()} {context.get_job_id()}"


def is_callers() -> bool:
    """Return whether the Ray in use was started or joined by the caller's own code."""
    return session() not in _joined


def _init(address: str, runtime_env: Mapping[str, Any], **options: Any) -> None:
    """Call `ray.init` in a thread that lives as long as this process.

    Linux ends Ray's processes together with the thread that started them, and `ray.init` in the main thread replaces
    the SIGTERM handler.
    """
    done = Future[None]()

    def start() -> None:
        try:
            ray.init(
                address=address,
                runtime_env=dict(runtime_env) or None,
                log_to_driver=False,
                logging_level=logging.ERROR,
                **options,
            )
            done.set_result(None)
        except BaseException as error:
            done.set_exception(error)
            return
        threading.Event().wait()

    threading.Thread(target=start, daemon=True).start()
    try:
        done.result(JOIN_SECONDS)
    except Exception as error:  # Ray raises errors of many types
        if not done.done():
            raise SimulationError(
                f"backend.address={address}: no answer from Ray within {JOIN_SECONDS} s; see whether it runs (ray status) "
                "and its logs in /tmp/ray, or use backend=auto"
            ) from error
        advice = UNWRITABLE if getattr(error, "errno", None) in REFUSALS else "see Ray's logs in /tmp/ray"
        raise SimulationError(
            f"backend.address={address}: cannot start or join Ray ({first_line(error)}); {advice}"
        ) from error
    _restore_sigterm()


def _restore_sigterm() -> None:
    """Reinstall Python's SIGTERM handler: Ray's C++ code has replaced it with one that aborts."""
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def _check_joined(address: str, runtime_env: Mapping[str, Any]) -> None:
    """Check that the Ray in use is the requested one; a Ray that the caller started is accepted."""
    joined, environment = _joined.get(session(), (address, {}))
    if joined != address:
        raise SimulationError(
            f"backend.address={address}: this process already uses the Ray at {joined}, and can use only one; run "
            "the two one after the other"
        )
    if environment != runtime_env:
        raise SimulationError(
            f"backend.runtime_env: this process already uses Ray with {environment or 'none'}, and can use only one; "
            "run the two one after the other"
        )


def running_address() -> str | None:
    """Return the address of the cluster that `auto` joins: `RAY_ADDRESS`, else that of a local `ray start`, else None."""
    return os.environ.get("RAY_ADDRESS") or utils.read_ray_address()


def check_answers(address: str) -> None:
    """Fail within seconds if nothing listens at `host:port`; Ray would retry for a minute.

    Raises:
        SimulationError: Nothing listens there.
    """
    endpoint = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    if ":" not in endpoint:
        return
    host, _, port = endpoint.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=5):
            pass
    except (OSError, ValueError, OverflowError) as error:
        where = address if address == endpoint else f"{address} (RAY_ADDRESS={endpoint})"
        raise SimulationError(
            f"backend.address={where}: nothing answers there ({first_line(error)}); give the address of a Ray head "
            "node, auto or local"
        ) from error


def _refusal(address: str) -> str | None:
    """Return why this machine cannot join a cluster, with advice; None if it can.

    A subprocess tries to join, because Ray may abort the process. The subprocess does not belong to the job, because
    nodes drop a job's working folder when one of its processes ends.
    """
    environment = {name: value for name, value in os.environ.items() if name != JOB_CONFIG}
    command = [sys.executable, "-c", TRIAL, address]
    try:
        trial = subprocess.run(command, capture_output=True, text=True, timeout=TRIAL_SECONDS, env=environment)
    except subprocess.TimeoutExpired:
        return (
            f"no answer from Ray within {TRIAL_SECONDS} s; try again if the cluster is busy (ray status shows it), or "
            "correct the address"
        )
    if trial.returncode == 0:
        return None
    reason = one_line(trial.stdout).rstrip(".") or "Ray ended the process without a reason"
    return (
        f"cannot reach Ray ({reason}); start a cluster (ray start --head) or use local; a machine that joins is a node of "
        "the cluster and has its Ray, its Python and its token (RAY_AUTH_MODE=token, RAY_AUTH_TOKEN)"
    )
